//! A door for fuzzing: what this crate reads from a server, from any bytes. No part of the public interface.

use crate::node::{Data, queue};
use crate::{fence, path};

/// Reads bytes as a node's data and as the names of nodes.
///
/// # Panics
/// Only by a defect: on bytes that are not read, or on what is read and does not come back.
pub fn read(bytes: &[u8]) {
    if let Some(data) = Data::decode(bytes) {
        assert_eq!(Data::decode(&data.encode()).as_ref(), Some(&data));
        assert_eq!(data.shown().len(), 32);
    }
    let text = String::from_utf8_lossy(bytes);
    let nodes: Vec<_> = text.lines().map(str::to_owned).collect();
    assert!(queue(&nodes).len() <= nodes.len());
    for node in &nodes {
        if let Some(name) = path::name(node) {
            assert_eq!(path::folder("", &name).strip_prefix('/'), Some(node.as_str()));
        }
    }
    let _ = fence::parsed(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::read;
    use crate::ZkConfig;

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes);
        }

        #[test]
        fn what_looks_like_an_entry(
            first in "[0-9]{0,2}", mark in "(waiting:|revoked:|[a-z:]{0,9})", owner in "[0-9a-f]{30,33}",
            numbers in prop::array::uniform2(prop_oneof![any::<u64>().prop_map(|n| n.to_string()), "[-+0-9]{0,25}"]), label in "\\PC{0,40}",
        ) {
            let [ttl, since] = numbers;
            read(format!("{first}\n{mark}{owner}\n{ttl}\n{since}\n{label}").as_bytes());
        }

        #[test]
        fn what_looks_like_nodes(nodes in prop::collection::vec("(_c_)?[0-9a-f]{0,8}(-lock-|__lock__|__rlock__)?-?[0-9]{0,20}|%[0-9A-Fa-f]{0,2}.{0,9}", 0..9)) {
            read(nodes.join("\n").as_bytes());
        }

        #[test]
        fn any_url(text in "(zk://)?\\PC{0,60}") {
            let _ = ZkConfig::from_url(text);
        }
    }
}
