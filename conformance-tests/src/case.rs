//! Cases: what is proved, of which rules, and with what.

use futures_util::future::BoxFuture;

use crate::{Bench, Need, Outcome};

/// One case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// The group that it stands in, which is the file's name.
    pub group: &'static str,
    /// Its name within the group.
    pub name: &'static str,
    /// The rules that it proves.
    pub rules: &'static [&'static str],
    /// What it needs of a harness.
    pub needs: &'static [Need],
    /// The case itself.
    pub(crate) run: for<'a> fn(&'a Bench) -> BoxFuture<'a, Outcome>,
}

impl Case {
    /// `group::name`.
    pub fn full_name(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}::{} {:?}", self.group, self.name, self.rules)
    }
}

/// All cases, in the order of the contract.
pub fn all() -> impl Iterator<Item = &'static Case> {
    crate::cases::ALL.iter().flat_map(|group| group.iter())
}

/// Lists the cases of a group: `name: [RULES] needs [NEEDS];`
macro_rules! cases {
    ($group:literal: $($name:ident: [$($rule:ident)*] $(needs [$($need:ident)*])?;)*) => {
        pub(super) const CASES: &[$crate::case::Case] = &[$($crate::case::Case {
            group: $group,
            name: stringify!($name),
            rules: &[$(stringify!($rule)),*],
            needs: &[$($($crate::Need::$need),*)?],
            run: |bench| Box::pin($name(bench)),
        }),*];
    };
}
pub(crate) use cases;
