//! What a broken backend does wrong, one fault at a time.

/// A fault that the memory backend can be given, so that a conformance suite proves that it would notice.
///
/// Each one breaks a single promise and keeps all others as well as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// A held name is granted to whoever asks for it, beside its holder (M1).
    DoubleGrant,
    /// A request that is refused sets the holder's remaining time to the whole TTL again (M3).
    ContenderProlongs,
    /// An acquisition answers 500 ms after the grant and dates its validity from the answer (M2).
    ValidityFromReply,
    /// The validity is the whole TTL, without the margin for drift (M2).
    ValidityWithoutMargin,
    /// A lease that is not renewed stays for ever (T1).
    NeverExpires,
    /// A lease ends after half of its TTL, and says nothing of it (T1).
    ExpiresEarly,
    /// A lease ends 2 s after its TTL, and says nothing of it (T1).
    ExpiresLate,
    /// The TTL is cut to whole seconds, as the effective one shows (T2).
    TtlRoundedDown,
    /// A renewal adds the TTL to the time that remains (T4).
    RenewAdds,
    /// A renewal of an entry that is gone makes a new one (T4).
    RenewCreates,
    /// A renewal after the end of the TTL revives the lease, if nobody else has come (T4).
    RenewRevives,
    /// A renewal is confirmed, and the remaining time is not touched (T4).
    RenewLies,
    /// A renewal does not compare the owner: it prolongs whatever stands there (O1).
    RenewIgnoresOwner,
    /// A release does not compare the owner: it removes whatever stands there (O1).
    ReleaseIgnoresOwner,
    /// A release says `Released` and removes nothing (O2).
    ReleaseLies,
    /// A release says `Released` although the name was not held (O2).
    ReleaseAlwaysReleased,
    /// Revoking with a mark removes the entry (O3).
    MarkDeletes,
    /// Revoking does not compare the token that is expected (O3).
    RevokeIgnoresToken,
    /// A holder whose lease was revoked is told by nothing, and its renewals are confirmed (O3).
    RevokeUnnoticed,
    /// The token starts again at 1 after a release (F1).
    TokenRestartsAfterRelease,
    /// The token starts again at 1 after the entry was removed by hand, as `revoke(.., Now)` does (F1).
    TokenRestartsAfterRemoval,
    /// The token starts again at 1 after the lease has expired (F1).
    TokenRestartsAfterExpiry,
    /// Every second grant bears the token of the one before (F1).
    TokenRepeats,
    /// A renewal gives the lease a new token (F1).
    TokenChangesOnRenew,
    /// `abandon` answers and removes nothing (U1).
    AbandonDoesNothing,
    /// `abandon` removes an entry, but no place in the queue (U1).
    AbandonLeavesPlace,
    /// `abandon` removes whatever entry stands there, whoever owns it (U1).
    AbandonIgnoresOwner,
    /// A second request of the owner that holds the name is busy, or waits (U2).
    RetryIsStranger,
    /// A grant is answered 200 ms after its TTL has passed, and looks fresh (U3).
    LateGrant,
    /// A waiting request ignores its limit (W1).
    LimitIgnored,
    /// A request that may wait answers `Busy` at once (W1).
    NeverWaits,
    /// A request that must not wait waits 3 s (W1).
    TryWaits,
    /// A waiter is not woken by a release; it looks again only when the lease that it saw would have expired (W2).
    WakeUpForgotten,
    /// A waiter is not woken when the holder's lease expires (W2).
    ExpiryWakesNobody,
    /// A waiter that is cancelled leaves its place in the queue, and the name is handed to it (W3).
    CancelLeavesPlace,
    /// A waiter whose limit passes leaves its place in the queue, and the name is handed to it (W3).
    LimitLeavesPlace,
    /// The waiter that came last is served first (W4).
    LastComeFirst,
    /// A loss has the reason `Expired`, whatever has happened (L1).
    ReasonAlwaysExpired,
    /// `loss` is never ready (L5).
    LossNeverPushed,
    /// A released entry stays for another 5 s; nobody is refused for it, but `inspect` shows it (R1).
    ReleasedStaysVisible,
    /// Names are folded to lower case (N1).
    NameFolded,
    /// Names are cut to 255 bytes (N1).
    NameCut,
    /// Names are trimmed of white space (N1).
    NameTrimmed,
    /// Names end at their first NUL byte (N1).
    NameEndsAtNul,
    /// A busy name is an `Unavailable` error (E1).
    BusyIsError,
    /// Errors that are refusals by the contract, such as `InvalidTtl`, become `Internal`; so does a free name at `revoke` (E1).
    KindsBlurred,
    /// `inspect` shows nothing (O3).
    InspectShowsNothing,
    /// `inspect` shows a lease that has expired (T1).
    InspectShowsExpired,
    /// `list` shows all names, whatever prefix is asked for (N1).
    ListIgnoresPrefix,
    /// `list` shows the first page again, whatever page is asked for (O3).
    ListRepeatsPage,
}

impl Fault {
    /// All faults.
    pub const ALL: &'static [Self] = &[
        Self::DoubleGrant,
        Self::ContenderProlongs,
        Self::ValidityFromReply,
        Self::ValidityWithoutMargin,
        Self::NeverExpires,
        Self::ExpiresEarly,
        Self::ExpiresLate,
        Self::TtlRoundedDown,
        Self::RenewAdds,
        Self::RenewCreates,
        Self::RenewRevives,
        Self::RenewLies,
        Self::RenewIgnoresOwner,
        Self::ReleaseIgnoresOwner,
        Self::ReleaseLies,
        Self::ReleaseAlwaysReleased,
        Self::MarkDeletes,
        Self::RevokeIgnoresToken,
        Self::RevokeUnnoticed,
        Self::TokenRestartsAfterRelease,
        Self::TokenRestartsAfterRemoval,
        Self::TokenRestartsAfterExpiry,
        Self::TokenRepeats,
        Self::TokenChangesOnRenew,
        Self::AbandonDoesNothing,
        Self::AbandonLeavesPlace,
        Self::AbandonIgnoresOwner,
        Self::RetryIsStranger,
        Self::LateGrant,
        Self::LimitIgnored,
        Self::NeverWaits,
        Self::TryWaits,
        Self::WakeUpForgotten,
        Self::ExpiryWakesNobody,
        Self::CancelLeavesPlace,
        Self::LimitLeavesPlace,
        Self::LastComeFirst,
        Self::ReasonAlwaysExpired,
        Self::LossNeverPushed,
        Self::ReleasedStaysVisible,
        Self::NameFolded,
        Self::NameCut,
        Self::NameTrimmed,
        Self::NameEndsAtNul,
        Self::BusyIsError,
        Self::KindsBlurred,
        Self::InspectShowsNothing,
        Self::InspectShowsExpired,
        Self::ListIgnoresPrefix,
        Self::ListRepeatsPage,
    ];
}
