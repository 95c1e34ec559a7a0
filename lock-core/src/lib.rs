//! The contract, the keeper and the guard of distlock, a distributed lock over many backends.
//!
//! Users start at [`LockManager`]; the crate `distlock` gives them one from a URL. Whoever writes a backend implements
//! [`DistributedLock`] and [`Lease`], keeps the rules in [`contract`], and proves it with the crate `conformance-tests`.

mod backend;
mod batch;
mod bounded;
mod capabilities;
mod clock;
pub mod contract;
pub mod decorators;
mod diagnosis;
mod error;
pub mod fence;
mod fencing;
mod guard;
mod hold;
mod holder;
mod keeper;
mod lease;
mod lock_request;
mod mailbox;
mod manager;
mod meaning;
pub mod memory;
mod name;
mod owner;
mod request;
mod retry;
mod run;
mod runtime;
mod server_url;
mod shared;
pub mod telemetry;
#[cfg(feature = "test-util")]
pub mod testing;
mod ttl;
mod waiting;

pub use backend::{Acquisition, DistributedLock};
pub use batch::Batch;
pub use bounded::bounded;
pub use capabilities::{Capabilities, Durability, Reach};
pub use clock::{Clock, Deadline, TimeSource};
pub use diagnosis::{Diagnosis, Finding, Promise, Verdict, if_allowed};
pub use error::{Effect, ErrorKind, LockError};
pub use fencing::FencingToken;
pub use guard::{Held, LockGuard};
pub use holder::{Holder, HolderState, Page, Revoke};
pub use lease::{Lease, LostReason, Released, Renewal};
pub use lock_request::LockRequest;
pub use manager::{LockManager, ManagerBuilder};
pub use meaning::Meaning;
pub use name::{LockName, Namespace, escaped};
pub use owner::Owner;
pub use request::{AcquireRequest, Cancellation, Wait};
pub use run::{Ran, RunError};
pub use server_url::{Login, ServerUrl, UrlForm, host_and_port};
pub use ttl::Ttl;
pub use waiting::{Attempt, Contender, Pace, WaitingRoom};
