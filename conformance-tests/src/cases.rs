//! The cases, one file a group of rules.

use crate::case::Case;

mod cancellation;
mod errors;
mod fencing;
mod loss;
mod mutual_exclusion;
mod names;
mod owner;
mod residue;
mod ttl;
mod unclear;
mod waiting;

pub(crate) const ALL: &[&[Case]] = &[
    mutual_exclusion::CASES,
    ttl::CASES,
    owner::CASES,
    fencing::CASES,
    unclear::CASES,
    waiting::CASES,
    loss::CASES,
    residue::CASES,
    cancellation::CASES,
    names::CASES,
    errors::CASES,
];
