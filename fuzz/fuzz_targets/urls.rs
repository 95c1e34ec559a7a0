//! URLs: every backend's configuration, the registry's part, and what is shown of them.
#![no_main]

use distlock::{Options, Registry};
use libfuzzer_sys::fuzz_target;
use lock_core::{ErrorKind, LockError};

fuzz_target!(|text: &str| {
    judge(lock_redis::RedisConfig::from_url(text));
    judge(lock_mysql::MysqlConfig::from_url(text));
    judge(lock_zk::ZkConfig::from_url(text));
    judge(lock_etcd::EtcdConfig::from_url(text));
    if let Ok(url) = text.parse() {
        judge(lock_sqlite::SqliteConfig::from_url(&url));
    }
    assert!(distlock::redact(text).len() <= text.len() + 16 * text.matches(['&', '?', ':']).count() + 16);
    let refuses: distlock::Open =
        |_| Box::pin(async { Err(LockError::new(ErrorKind::Config, "nothing is dialled here")) });
    let registry =
        ["redis", "sqlite", "zk"].into_iter().fold(Registry::empty(), |known, scheme| known.with(scheme, refuses));
    let opened = futures_executor::block_on(Options::new().registry(registry).connect(text));
    judge(opened.map(|_| "connected"));
});

fn judge<T: std::fmt::Debug>(answer: Result<T, LockError>) {
    match answer {
        Ok(config) => drop(format!("{config:?}")),
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error:?}"),
    }
}
