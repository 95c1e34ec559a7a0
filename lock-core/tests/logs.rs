//! No name, label or prefix forges a line of a log or moves the cursor of whoever reads it.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{LockManager, Page, Revoke};

const EVIL: [&str; 6] = [
    "a\x1b[2J\x1b]0;title\x07b",
    "a\n2026-01-01T00:00:00Z  WARN forged",
    "a\r\x0b\x0c\x08b",
    "a\u{9b}31m\u{85}b",
    "a\u{202e}\u{2066}b\u{200f}\u{feff}",
    "a\u{2028}\u{2029}\x7fb",
];

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_log_has_whole_lines_of_visible_text() {
    let log = Log::default();
    let writer = log.clone();
    let with =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
    // The keeper's thread logs too.
    with.with_writer(move || writer.clone()).init();
    for evil in EVIL {
        let locks = LockManager::new(Arc::new(MemoryLock::new())).unwrap();
        let guard = locks.lock(evil).label(evil).acquire().await.unwrap();
        assert!(locks.lock(evil).try_acquire().await.unwrap().is_none());
        assert!(locks.lock(evil).wait(Duration::from_millis(10)).acquire().await.is_err());
        assert_eq!(locks.list(evil, Page::first(9)).await.unwrap().len(), 1);
        assert!(locks.inspect(evil).await.unwrap().is_some());
        locks.revoke(evil, None, Revoke::Mark).await.unwrap();
        guard.lost().await;
        let _ = guard.release().await;
        locks.close().await.unwrap();
        assert!(locks.lock(evil).acquire().await.is_err());
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("a lock was lost") && text.contains("acquire"), "{text}");
    for line in text.lines() {
        assert!(line.starts_with("20") && !line.contains("Z  WARN forged\n"), "a forged line: {line:?}");
        assert!(line.chars().all(|c| matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1), "{line:?}");
    }
    assert_eq!(
        text.lines().filter(|line| line.contains("Z  WARN forged")).count(),
        text.matches("WARN forged").count()
    );
}
