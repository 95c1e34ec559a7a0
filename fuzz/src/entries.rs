/// Reads what a store says: rows, answers, keys, values, nodes. The first byte chooses the backend.
pub fn read(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 5 {
        0 => lock_redis::untrusted::read(bytes),
        1 => lock_zk::untrusted::read(bytes),
        2 => lock_etcd::untrusted::read(bytes),
        3 => lock_mysql::untrusted::read(bytes),
        _ => lock_sqlite::untrusted::read(bytes),
    }
}
