//! What is counted. Without the feature `metrics` nothing is.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `distlock_acquisitions_total` | counter | `backend`, `outcome` = `granted`, `busy`, `error` |
//! | `distlock_wait_seconds` | histogram | `backend`: from the request to the grant |
//! | `distlock_hold_seconds` | histogram | `backend`: from the grant to the release |
//! | `distlock_renewals_total` | counter | `backend`, `outcome` = `renewed`, `lost`, `error` |
//! | `distlock_renewal_margin_seconds` | histogram | `backend`: how much time was left when a renewal was sent |
//! | `distlock_losses_total` | counter | `backend`, `reason` |
//! | `distlock_releases_total` | counter | `backend`, `outcome` = `released`, `not_held`, `error` |

use std::time::Duration;

use crate::LostReason;

#[cfg(feature = "metrics")]
macro_rules! count {
    ($name:literal, $($key:literal => $value:expr),+) => { metrics::counter!($name, $($key => $value),+).increment(1) };
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($name:literal, $($key:literal => $value:expr),+) => {{ $(let _ = $value;)+ }};
}
#[cfg(feature = "metrics")]
macro_rules! record {
    ($name:literal, $backend:expr, $span:expr) => {
        metrics::histogram!($name, "backend" => $backend).record($span.as_secs_f64())
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! record {
    ($name:literal, $backend:expr, $span:expr) => {{
        let _ = ($backend, $span);
    }};
}

pub(crate) fn acquired(backend: &'static str, outcome: &'static str, waited: Duration) {
    count!("distlock_acquisitions_total", "backend" => backend, "outcome" => outcome);
    if outcome == "granted" {
        record!("distlock_wait_seconds", backend, waited);
    }
}

pub(crate) fn renewing(backend: &'static str, margin: Duration) {
    record!("distlock_renewal_margin_seconds", backend, margin);
}

pub(crate) fn renewed(backend: &'static str, outcome: &'static str) {
    count!("distlock_renewals_total", "backend" => backend, "outcome" => outcome);
}

pub(crate) fn released(backend: &'static str, outcome: &'static str, held: Duration) {
    count!("distlock_releases_total", "backend" => backend, "outcome" => outcome);
    if outcome != "error" {
        record!("distlock_hold_seconds", backend, held);
    }
}

pub(crate) fn lost(backend: &'static str, reason: LostReason) {
    count!("distlock_losses_total", "backend" => backend, "reason" => reason.as_str());
}
