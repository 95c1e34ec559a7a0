//! What stands in a lock's folder: which nodes contend, in which order, and what they say of their owner.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{AcquireRequest, Owner};

/// What Curator and this library (`-lock-`) and kazoo (`__lock__`, `__rlock__`) put before the number of a contender.
const MARKS: [&str; 3] = ["-lock-", "__lock__", "__rlock__"];

/// The number of a contender's node; `None` for a node that does not contend.
///
/// The server counts with 32 bits and writes ten digits; past the end they start again at the least negative number.
pub(crate) fn number(node: &str) -> Option<i32> {
    let (mark, at) = MARKS.iter().filter_map(|mark| node.rfind(mark).map(|at| (mark, at))).max_by_key(|(_, at)| *at)?;
    let digits = &node[at + mark.len()..];
    let long = digits.len() >= 10 && digits.strip_prefix('-').unwrap_or(digits).bytes().all(|b| b.is_ascii_digit());
    // A server with longer numbers cuts nothing off: the lower half keeps the order.
    digits.parse::<i64>().ok().filter(|_| long).map(|number| number as i32)
}

/// How far `a` stands before `b` in the queue, over the end of the numbers; negative behind it.
pub(crate) fn ahead(a: i32, b: i32) -> i32 {
    b.wrapping_sub(a)
}

/// The contenders of a folder, in order.
pub(crate) fn queue(children: &[String]) -> Vec<(&str, i32)> {
    let mut queue: Vec<_> = children.iter().filter_map(|node| Some((node.as_str(), number(node)?))).collect();
    queue.sort_by(|(_, a), (_, b)| 0.cmp(&ahead(*a, *b)));
    queue
}

const WAITING: &str = "waiting:";
const REVOKED: &str = "revoked:";

/// What the owner of a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It holds the name, or did not know yet that it must wait.
    Holds,
    Waits,
    Revoked,
}

/// What a node's data says. The layout is frozen; a new one has another first line.
///
/// Five lines: `1`, the owner (while it waits `waiting:` and the owner, after a revocation `revoked:` and the owner), the TTL in milliseconds, the time of the request in
/// milliseconds since 1970, and the label, which may have lines of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) owner: Owner,
    pub(crate) role: Role,
    pub(crate) ttl: Duration,
    pub(crate) since: SystemTime,
    pub(crate) label: String,
}

impl Data {
    pub(crate) fn new(request: &AcquireRequest, ttl: Duration) -> Self {
        let label = request.label.to_string();
        Self { owner: request.owner, role: Role::Holds, ttl, since: SystemTime::now(), label }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mark = match self.role {
            Role::Holds => "",
            Role::Waits => WAITING,
            Role::Revoked => REVOKED,
        };
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        format!("1\n{mark}{}\n{}\n{since}\n{}", self.owner, self.ttl.as_millis(), self.label).into_bytes()
    }

    /// `None` for what another wrote.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(data).ok()?.splitn(5, '\n');
        let mut next = || lines.next();
        let ours = next()? == "1";
        let owner = next()?;
        let (owner, role) = match (owner.strip_prefix(WAITING), owner.strip_prefix(REVOKED)) {
            (Some(owner), _) => (owner, Role::Waits),
            (_, Some(owner)) => (owner, Role::Revoked),
            _ => (owner, Role::Holds),
        };
        let ttl = Duration::from_millis(next()?.parse().ok()?);
        let since = UNIX_EPOCH.checked_add(Duration::from_millis(next()?.parse().ok()?))?;
        let label = next()?.to_owned();
        Some(Self { owner: owner.parse().ok().filter(|_| ours)?, role, ttl, since, label })
    }

    /// The owner's text, as it is shown.
    pub(crate) fn shown(&self) -> String {
        self.owner.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contenders_have_a_number() {
        for (node, expected) in [
            ("_c_6c5b-lock-0000000007", Some(7)),
            ("_c_6c5b-lock--2147483648", Some(i32::MIN)),
            ("_c_6c5b-lock--000000005", Some(-5)),
            ("0a1b__lock__0000000001", Some(1)),
            ("0a1b__rlock__0000000002", Some(2)),
            ("_c_x-lock-0000002147483648", Some(i32::MIN)),
            ("README", None),
            ("lock-", None),
            ("x-y-z", None),
            ("zzz0000000000", None),
            ("-lock-", None),
            ("-lock-12", None),
            ("-lock-+000000001", None),
            ("a-lock-000000000x", None),
        ] {
            assert_eq!(number(node), expected, "{node}");
        }
    }

    #[test]
    fn the_order_holds_over_the_end_of_the_numbers() {
        let numbers = ["2147483646", "2147483647", "-2147483648", "-2147483647"];
        let mut nodes: Vec<_> = numbers.iter().map(|n| format!("_c_x-lock-{n}")).collect();
        nodes.reverse();
        nodes.insert(1, "README".into());
        let order: Vec<_> = queue(&nodes).into_iter().map(|(node, _)| node.to_owned()).collect();
        nodes.retain(|node| node != "README");
        nodes.reverse();
        assert_eq!(order, nodes);
    }

    #[test]
    fn the_layout_is_frozen() {
        let owner = "00112233445566778899aabbccddeeff";
        let text = format!("1\n{owner}\n30000\n1700000000123\nbuild 7\nof two lines");
        let data = Data::decode(text.as_bytes()).unwrap();
        assert_eq!((data.shown(), data.ttl, data.role), (owner.into(), Duration::from_secs(30), Role::Holds));
        assert_eq!(data.label, "build 7\nof two lines");
        assert_eq!(data.encode(), text.as_bytes());
        for (role, mark) in [(Role::Waits, "1\nwaiting:"), (Role::Revoked, "1\nrevoked:")] {
            let marked = Data { role, ..data.clone() };
            assert!(marked.encode().starts_with(mark.as_bytes()));
            assert_eq!(Data::decode(&marked.encode()), Some(marked));
        }
        for foreign in ["", "1", "2\nx", "192.168.0.1", &text[..40], &text.replace('1', "2")] {
            assert_eq!(Data::decode(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
