//! A flash sale: a thousand buyers, two products, a hundred of each, and a stock that nothing protects but the lock.
//!
//! ```sh
//! cargo run -p distlock --example flash_sale                            # over a SQLite file
//! cargo run -p distlock --example flash_sale --features redis -- redis://127.0.0.1/
//! ```
//!
//! Each buyer reads the book of sales, pauses, and writes it back with a line of its own: two buyers inside at a time, and a sale is lost.
//! The exit code is 0 when exactly the stock was sold, 1 when not, 130 after Ctrl-C. How a buyer behaves is in `buyer.rs`.

#[path = "../common/mod.rs"]
mod common;

mod buyer;
mod progress;
mod shop;
mod summary;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::sync::watch;
use tokio::task::JoinSet;

use buyer::Buyer;
use progress::Progress;
use shop::Shop;
use summary::Summary;

/// A flash sale, to see that nothing is sold twice.
#[derive(Parser)]
struct Args {
    /// The backend, such as redis://host/ [default: DISTLOCK_URL, else a SQLite file]
    url: Option<String>,
    /// How many buyers come
    #[arg(long, default_value_t = 1000)]
    buyers: usize,
    /// How many of each product there are
    #[arg(long, default_value_t = 100)]
    stock: usize,
    /// How many products, each with a lock of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    products: u32,
    /// How long a lock outlives a machine that dies [default: 30s]
    #[arg(long, value_parser = common::duration)]
    ttl: Option<Duration>,
    /// How long a buyer waits, outages of the backend included
    #[arg(long, default_value = "2min", value_parser = common::duration)]
    wait: Duration,
    /// A folder for the books; processes that are given the same one sell from the same stock [default: a new one, removed at the end]
    #[arg(long)]
    shop: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            // The first time those who wait go home; the second time nobody is asked.
            if stop.send_replace(true) {
                std::process::exit(130);
            }
            eprintln!("flash_sale: closing; those who are being served are served");
        }
    });
    let ended = common::ended("flash_sale", sell(args, stopped.clone()).await);
    if *stopped.borrow() { ExitCode::from(130) } else { ended }
}

/// Runs the sale; whether the books are right.
async fn sell(args: Args, stopped: watch::Receiver<bool>) -> Result<bool, Box<dyn Error>> {
    let locks = common::connect(args.url, args.ttl).await?;
    let shop = Arc::new(Shop::open(args.shop, args.stock)?);
    let progress = Arc::new(Progress::new(args.buyers, args.stock * args.products as usize));
    let start = Instant::now();
    let mut buyers = JoinSet::new();
    for number in 0..args.buyers {
        let buyer = Buyer {
            name: format!("{}-{number}", std::process::id()),
            product: number % args.products as usize,
            patience: args.wait,
            locks: locks.manager.clone(),
            shop: Arc::clone(&shop),
        };
        let (progress, mut stopped) = (Arc::clone(&progress), stopped.clone());
        buyers.spawn(async move {
            let visit = buyer.visit(&mut stopped).await;
            progress.served(&visit);
            visit
        });
    }
    let visits = buyers.join_all().await;
    let took = start.elapsed();
    progress.finish();
    // Releases that were not confirmed yet are waited for.
    locks.manager.close().await?;
    let audits = (0..args.products as usize).map(|product| shop.audit(product)).collect::<Result<Vec<_>, _>>()?;
    let summary = Summary { visits, audits, stock: args.stock, start, took, stopped: *stopped.borrow() };
    println!("{:<9} {}, {}, TTL {:?}", "backend", locks.manager.capabilities().backend, locks.url, locks.ttl);
    Ok(summary.print())
}
