//! Servers that the suite starts itself, on free ports, in temporary folders. One file a server.

#[cfg(feature = "redis")]
pub mod certificate;
#[cfg(any(feature = "etcd", feature = "zk"))]
pub mod cluster;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "redis")]
pub mod gates;
#[cfg(any(feature = "etcd", feature = "zk"))]
mod links;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "mysql")]
pub mod mysql_pair;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redis_group;
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) mod system;
#[cfg(feature = "zk")]
pub mod zk;

use std::time::Duration;

use tokio::net::TcpStream;

#[cfg(any(feature = "mysql", feature = "redis"))]
use crate::process::Process;
use crate::{Stop, eventually};

/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Waits until something accepts connections on a port of the loopback interface.
///
/// # Errors
/// When nothing does within a minute.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn accepts(port: u16) -> Result<(), Stop> {
    let open = eventually(START_LIMIT, || async { TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await;
    if open { Ok(()) } else { Err(format!("nothing answers on port {port} within {START_LIMIT:?}").into()) }
}

/// Waits until a process that has just been started accepts connections; not for one that ends instead, as when its port was taken meanwhile.
#[cfg(any(feature = "mysql", feature = "redis"))]
async fn comes_up(process: &Process, port: u16) -> Result<(), Stop> {
    let ended = || process.exit_code().is_some();
    let accepts = || async { ended() || TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
    let answered = eventually(START_LIMIT, accepts).await;
    crate::ensure!(!ended(), "it ended right after its start");
    if answered { Ok(()) } else { Err(format!("nothing answers on port {port} within {START_LIMIT:?}").into()) }
}
