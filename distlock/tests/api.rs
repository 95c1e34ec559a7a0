//! The library as a user meets it.

use std::time::Duration;

use distlock::{ErrorKind, Held, LockError, LockGuard, LockManager, LockRequest, Namespace, Options, Registry, Ttl};

#[test]
fn what_moves_between_threads_may() {
    fn send<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    fn send_static<T: Send + 'static>(_: T) {}
    send::<LockGuard>();
    send::<LockRequest>();
    shared::<LockManager>();
    shared::<Held>();
    shared::<LockError>();
    shared::<Options>();
    send_static(distlock::connect("memory:"));
    send_static(async {
        let locks = distlock::connect("memory:").await?;
        let guard = locks.lock("x").acquire().await?;
        guard.renew().await?;
        let lost = guard.lost();
        guard.release().await?;
        drop(lost);
        locks.lock("x").try_acquire().await?;
        locks.close().await
    });
}

#[tokio::test]
async fn options_reach_the_manager() {
    let locks = Options::new()
        .namespace(Namespace::new("n/").unwrap())
        .ttl(Ttl::new(Duration::from_secs(3)).unwrap())
        .wait(Duration::from_millis(50))
        .connect("MEMORY:?fence_base=1000")
        .await
        .unwrap();
    let guard = locks.lock("x").acquire().await.unwrap();
    assert_eq!(guard.ttl(), Duration::from_secs(3));
    assert!(guard.fencing_token().get() > 1000);
    let err = locks.lock("x").acquire().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Timeout);
    guard.release().await.unwrap();
    locks.close().await.unwrap();
}

#[tokio::test]
async fn bad_urls_are_config_errors_that_name_the_matter() {
    for (url, word) in [
        ("memory:?colour=red", "'colour'"),
        ("memory://host/", "no host"),
        ("mongodb://u:hunter2@h/", "'mongodb'"),
        ("mysql://u:hunter2@h/", "mysql"),
        ("hunter2", "not a URL"),
        ("memory:?fence_base=-1", "fence_base"),
        #[cfg(feature = "sqlite")]
        ("sqlite:///tmp/x.db?hunter2=hunter2&colour=red", "parameter"),
        #[cfg(feature = "redis")]
        ("redis://u:hunter2@127.0.0.1:1/?colour=red", "colour"),
        #[cfg(feature = "redis")]
        ("REDIS://u:hunter2@127.0.0.1:port/", "port"),
    ] {
        let err = distlock::connect(url).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Config, "{err}");
        assert!(err.to_string().contains(word), "{err}");
        if !url.contains("hunter2=") {
            assert!(!format!("{err} {err:?}").contains("hunter2"), "{err:?}");
        }
    }
}

#[tokio::test]
async fn a_program_may_bring_its_own_registry() {
    let none = Options::new().registry(Registry::empty());
    let err = none.connect("memory:").await.unwrap_err();
    assert!(err.to_string().contains("'memory'"), "{err}");
}
