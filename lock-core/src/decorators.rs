//! Backends that wrap a backend.

mod fence_base;
mod instrumented;
mod namespaced;

pub use fence_base::FenceBase;
pub use instrumented::Instrumented;
pub use namespaced::Namespaced;
