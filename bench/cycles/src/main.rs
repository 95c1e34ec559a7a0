//! `distlock-cycles ours|own-thread COUNT`: so many cycles of acquire and release on the memory backend, and nothing else.

use distlock::Options;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (home, count) = (arguments.next().ok_or("ours or own-thread?")?, arguments.next().ok_or("how many?")?);
    let count: u64 = count.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut options = Options::new();
        if home == "ours" {
            options = options.runtime(tokio::runtime::Handle::current());
        }
        let locks = options.connect("memory:").await?;
        for _ in 0..count {
            locks.lock("cycle").acquire().await?.release().await?;
        }
        Ok(locks.close().await?)
    })
}
