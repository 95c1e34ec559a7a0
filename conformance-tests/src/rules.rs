//! The rules of the contract, by number.

/// One rule of the contract, and the words that a report shows for it.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its number, such as `M1`.
    pub id: &'static str,
    /// What it says, in a few words.
    pub title: &'static str,
}

const fn rule(id: &'static str, title: &'static str) -> Rule {
    Rule { id, title }
}

/// All rules, in the order of the contract.
pub const RULES: &[Rule] = &[
    rule("M1", "at most one live lease per name"),
    rule("M2", "held only while nobody else can be"),
    rule("M3", "owners are random and new"),
    rule("T1", "an abandoned lease ends in time, never early"),
    rule("T2", "TTLs are checked, never cut down"),
    rule("T3", "the backend alone decides expiry"),
    rule("T4", "renew sets, never adds, creates or revives"),
    rule("O1", "renew and release compare the owner in one step"),
    rule("O2", "release tells the truth and may be repeated"),
    rule("O3", "revoking keeps everybody else out"),
    rule("F1", "tokens rise with each grant"),
    rule("F2", "tokens after a loss of all data are as declared"),
    rule("F3", "a fence base lifts every token"),
    rule("U1", "an unclear acquisition leaves nothing behind"),
    rule("U2", "a retry recognises its own entry"),
    rule("U3", "what is handed out is alive"),
    rule("W1", "the wait limit covers everything"),
    rule("W2", "a freed name reaches a waiter in time"),
    rule("W3", "who stops waiting leaves no place behind"),
    rule("W4", "order of arrival, or a bound on starvation"),
    rule("W5", "requests per grant do not grow with the waiters"),
    rule("L1", "lost is final and has a reason"),
    rule("L2", "lost needs no answer"),
    rule("L3", "a clean release never raises lost"),
    rule("L4", "a short outage is invisible"),
    rule("L5", "a removed entry is noticed and never made again"),
    rule("L6", "a keeper never deletes under its holder's feet"),
    rule("R1", "nothing remains after a release"),
    rule("R2", "a guard may be dropped anywhere"),
    rule("R3", "connections do not grow with names or waiters"),
    rule("R4", "an entry never outlives its keeper"),
    rule("X1", "every future may be dropped at any point"),
    rule("N1", "different bytes are different locks"),
    rule("N2", "the layout of entries is frozen"),
    rule("E1", "contention is no error, kinds are kept apart"),
    rule("E2", "passing troubles of a driver are absorbed"),
    rule("E3", "secrets are never shown"),
];
