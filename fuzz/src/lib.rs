//! What is fuzzed, as plain functions: `fuzz_targets` hands them what a fuzzer makes up, and `distlock/tests/fuzz.rs` the seeds.
//!
//! Each panics on a defect, and only on one.

/// What a store says.
pub mod entries;
/// Configuration files.
pub mod files;
/// Names, namespaces and owners.
pub mod names;
/// URLs.
pub mod urls;
