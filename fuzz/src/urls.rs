use std::sync::LazyLock;

use distlock::{Options, Registry};
use lock_core::{ErrorKind, LockError};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime that dials nothing"));

/// Reads a URL: as every backend's configuration, as the registry does, and as it is shown.
pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
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
    let options = Options::new().runtime(RUNTIME.handle().clone()).registry(registry);
    judge(RUNTIME.block_on(options.connect(text)).map(|_| "connected"));
}

fn judge<T: std::fmt::Debug>(answer: Result<T, LockError>) {
    match answer {
        Ok(config) => drop(format!("{config:?}")),
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error:?}"),
    }
}
