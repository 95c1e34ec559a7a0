//! The targets of `fuzz/` still compile, and stand their seeds, without a fuzzer: it is a workspace of its own that the normal build leaves out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

#[allow(unreachable_pub, reason = "it is the library of a crate of its own")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

type Target = fn(&[u8]);

#[test]
fn every_target_stands_its_seeds_whole_and_cut() {
    let targets: [(&str, Target); 4] = [
        ("entries", targets::entries::read),
        ("files", targets::files::read),
        ("names", targets::names::read),
        ("urls", targets::urls::read),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    for (name, read) in targets {
        let target = fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("{name}::read(bytes)")), "the target {name} fuzzes something else");
        let seeds: Vec<_> =
            fs::read_dir(root.join("seeds").join(name)).unwrap().map(|seed| seed.unwrap().path()).collect();
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in seeds {
            let bytes = fs::read(&seed).unwrap();
            (0..=bytes.len()).for_each(|end| read(&bytes[..end]));
        }
    }
    let count = fs::read_dir(root.join("fuzz_targets")).unwrap().count();
    assert_eq!(count, targets.len(), "a target is not tried here");
}
