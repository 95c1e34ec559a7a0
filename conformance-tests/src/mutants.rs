//! Broken backends, each with the case that must catch it.

use lock_core::memory::Fault;

/// A broken backend.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What is broken; its documentation says how.
    pub fault: Fault,
    /// The rules that it breaks.
    pub rules: &'static [&'static str],
    /// The full name of the case that must fail on it.
    pub killed_by: &'static str,
}

const fn mutant(fault: Fault, rules: &'static [&'static str], killed_by: &'static str) -> Mutant {
    Mutant { fault, rules, killed_by }
}

/// All mutants, in the order of the contract.
pub const MUTANTS: &[Mutant] = &[
    mutant(Fault::DoubleGrant, &["M1"], "mutual_exclusion::a_held_name_is_busy_for_everybody"),
    mutant(Fault::ValidityFromReply, &["M2"], "mutual_exclusion::validity_counts_from_the_send"),
    mutant(Fault::ValidityWithoutMargin, &["M2"], "mutual_exclusion::validity_has_its_margin"),
    mutant(Fault::ContenderProlongs, &["M3", "T4"], "mutual_exclusion::a_contender_does_not_prolong_the_lease"),
    mutant(Fault::NeverExpires, &["T1"], "ttl::an_abandoned_lease_ends_in_time_and_not_early"),
    mutant(Fault::ExpiresEarly, &["T1"], "ttl::an_abandoned_lease_ends_in_time_and_not_early"),
    mutant(Fault::ExpiresLate, &["T1"], "ttl::an_abandoned_lease_ends_in_time_and_not_early"),
    mutant(Fault::InspectShowsExpired, &["T1"], "ttl::an_expired_lease_is_not_shown"),
    mutant(Fault::TtlRoundedDown, &["T2"], "ttl::odd_ttls_are_rounded_up_and_shown"),
    mutant(Fault::RenewAdds, &["T4"], "ttl::renewing_often_adds_nothing"),
    mutant(Fault::RenewCreates, &["T4", "L5"], "ttl::renewing_never_creates"),
    mutant(Fault::RenewRevives, &["T4"], "ttl::renewing_never_revives"),
    mutant(Fault::RenewLies, &["T4"], "ttl::renewing_prolongs"),
    mutant(Fault::RenewIgnoresOwner, &["O1"], "owner::stale_holder_after_a_takeover_by_hand"),
    mutant(Fault::ReleaseIgnoresOwner, &["O1"], "owner::stale_holder_after_a_takeover_by_hand"),
    mutant(Fault::ReleaseLies, &["O2"], "owner::release_frees_the_name_for_others"),
    mutant(Fault::ReleaseAlwaysReleased, &["O2"], "owner::release_is_idempotent"),
    mutant(Fault::MarkDeletes, &["O3"], "owner::a_mark_tells_the_holder_and_keeps_others_out"),
    mutant(Fault::RevokeIgnoresToken, &["O3"], "owner::revoking_compares_the_token"),
    mutant(Fault::RevokeUnnoticed, &["O3"], "owner::a_mark_tells_the_holder_and_keeps_others_out"),
    mutant(Fault::InspectShowsNothing, &["O3"], "owner::inspect_shows_the_holder"),
    mutant(Fault::ListRepeatsPage, &["O3"], "owner::list_shows_held_names_in_pages"),
    mutant(Fault::TokenRestartsAfterRelease, &["F1"], "fencing::tokens_rise_over_releases"),
    mutant(Fault::TokenRestartsAfterRemoval, &["F1"], "fencing::tokens_rise_over_removal_by_hand"),
    mutant(Fault::TokenRestartsAfterExpiry, &["F1"], "fencing::tokens_rise_over_expiry"),
    mutant(Fault::TokenRepeats, &["F1"], "fencing::tokens_rise_among_many_holders"),
    mutant(Fault::TokenChangesOnRenew, &["F1"], "fencing::a_lease_keeps_one_token"),
    mutant(Fault::AbandonDoesNothing, &["U1"], "unclear::abandoning_removes_the_entry_of_its_owner_alone"),
    mutant(Fault::AbandonIgnoresOwner, &["U1"], "unclear::abandoning_removes_the_entry_of_its_owner_alone"),
    mutant(Fault::AbandonLeavesPlace, &["U1", "X1"], "unclear::abandoning_removes_the_place_in_the_queue"),
    mutant(Fault::RetryIsStranger, &["U2"], "unclear::a_retry_recognises_its_own_entry"),
    mutant(Fault::LateGrant, &["U3"], "unclear::what_is_handed_out_is_alive"),
    mutant(Fault::LimitIgnored, &["W1"], "waiting::a_limit_is_kept"),
    mutant(Fault::NeverWaits, &["W1"], "waiting::a_release_reaches_a_waiter"),
    mutant(Fault::TryWaits, &["W1"], "waiting::not_waiting_answers_at_once"),
    mutant(Fault::WakeUpForgotten, &["W2"], "waiting::a_release_reaches_a_waiter"),
    mutant(Fault::ExpiryWakesNobody, &["W2"], "waiting::an_expiry_reaches_a_waiter"),
    mutant(Fault::CancelLeavesPlace, &["W3", "X1"], "waiting::who_is_cancelled_leaves_no_place"),
    mutant(Fault::LimitLeavesPlace, &["W3"], "waiting::who_reaches_the_limit_leaves_no_place"),
    mutant(Fault::LastComeFirst, &["W4"], "waiting::waiters_get_the_name_in_order_or_within_a_bound"),
    mutant(Fault::ReasonAlwaysExpired, &["L1"], "loss::a_revoked_holder_is_told"),
    mutant(Fault::LossNeverPushed, &["L5"], "loss::an_entry_removed_by_hand_is_noticed"),
    mutant(Fault::ReleasedStaysVisible, &["R1"], "residue::a_thousand_cycles_leave_nothing"),
    mutant(Fault::NameFolded, &["N1"], "names::names_that_differ_anywhere_are_different_locks"),
    mutant(Fault::NameTrimmed, &["N1"], "names::names_that_differ_anywhere_are_different_locks"),
    mutant(Fault::NameEndsAtNul, &["N1"], "names::awkward_names_are_locks_of_their_own"),
    mutant(Fault::NameCut, &["N1"], "names::long_names_differ_in_their_last_byte"),
    mutant(Fault::ListIgnoresPrefix, &["N1"], "owner::list_shows_held_names_in_pages"),
    mutant(Fault::BusyIsError, &["E1"], "errors::contention_is_no_error"),
    mutant(Fault::KindsBlurred, &["E1"], "errors::bad_names_and_ttls_have_kinds_of_their_own"),
];

/// Rules that no fault of the memory backend can break, and why.
pub const WITHOUT_MUTANT: &[(&str, &str)] = &[
    ("T3", "the memory backend has one clock; the case is proved by clients whose clocks are wrong"),
    ("F2", "the case proves what is declared, both ways; a backend that declares wrongly fails it"),
    ("F3", "the base is added by a decorator above every backend, which has tests of its own"),
    ("W5", "there are no requests to count in memory; the case counts them on the line of a networked backend"),
    ("L2", "the holder judges by its own clock, whatever the backend answers"),
    ("L3", "the keeper stops listening for losses when a release begins, so no backend's fault reaches the guard"),
    ("L4", "retrying is the keeper's, which has tests of its own; the cases disturb real lines"),
    ("L6", "deleting is the keeper's, which has tests of its own"),
    ("R2", "dropping is the guard's and the keeper's; no backend takes part"),
    ("R3", "memory has no connections"),
    ("R4", "memory has no shared leases or sessions"),
    ("N2", "memory stores nothing that another version could read"),
    ("E2", "memory has no driver"),
    ("E3", "memory has no secrets"),
];
