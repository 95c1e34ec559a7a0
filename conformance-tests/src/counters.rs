//! What servers count themselves: requests and connections.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Stop;

/// What a server has counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Requests since it was started, with those of the one who asks.
    pub requests: u64,
    /// Clients' connections that are open now, with that of the one who asks.
    pub connections: u64,
}

/// By `INFO` of a Redis server, which also counts each command that a script runs.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
#[cfg(feature = "redis")]
pub async fn redis(url: &str) -> Result<Counters, Stop> {
    let mut connection = crate::servers::redis::patient_connection(url).await?;
    let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
    Ok(Counters {
        requests: number(&info, "total_commands_processed:")?,
        connections: number(&info, "connected_clients:")?,
    })
}

/// By the status of a MySQL server.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
#[cfg(feature = "mysql")]
pub async fn mysql(options: &sqlx::mysql::MySqlConnectOptions) -> Result<Counters, Stop> {
    use sqlx::ConnectOptions;
    let mut connection = options.connect().await?;
    let mut status = async |name: &str| -> Result<u64, Stop> {
        let (_, value): (String, String) =
            sqlx::query_as("SHOW GLOBAL STATUS WHERE Variable_name = ?").bind(name).fetch_one(&mut connection).await?;
        Ok(value.parse()?)
    };
    Ok(Counters { requests: status("Queries").await?, connections: status("Threads_connected").await? })
}

/// By `mntr` of a ZooKeeper server; pings are counted as requests.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
#[cfg(feature = "zk")]
pub async fn zk(port: u16) -> Result<Counters, Stop> {
    // A busy server keeps such a question waiting longer than one that is asked whether it is up.
    let mut tries = 20;
    let said = loop {
        tries -= 1;
        match crate::servers::zk::says(port, "mntr").await {
            Err(_) if tries > 0 => {}
            said => break said?,
        }
    };
    Ok(Counters {
        requests: number(&said, "zk_packets_received\t")?,
        connections: number(&said, "zk_num_alive_connections\t")?,
    })
}

/// By the metrics of an etcd member. A keep-alive is a request, a watch on a stream that is open already is none.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn etcd(port: u16) -> Result<Counters, Stop> {
    Ok(Counters { requests: etcd_received(port, "").await?, connections: connections_to(port)? })
}

/// Keep-alives that an etcd member was asked for, which come with time and not with grants.
///
/// # Errors
/// When it cannot be asked.
///
/// # Cancel safety
/// Dropping it loses nothing.
pub async fn etcd_keep_alives(port: u16) -> Result<u64, Stop> {
    etcd_received(port, "grpc_method=\"LeaseKeepAlive\"").await
}

/// Messages of clients, of the calls whose description contains a text.
async fn etcd_received(port: u16, of: &str) -> Result<u64, Stop> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await?;
    let received = metrics.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
    let of_these = received.filter(|line| line.contains(of));
    Ok(of_these.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64)
}

/// Established connections to a port of this machine, as the kernel lists the server's ends of them.
fn connections_to(port: u16) -> Result<u64, Stop> {
    const ESTABLISHED: &str = "01";
    let mut count = 0;
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // Each line: number, own address and port in hexadecimal, the other's, state.
        let lines = std::fs::read_to_string(table)?;
        let ours = format!(":{port:04X}");
        let server_ends = lines.lines().filter(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_ours = words.next().is_some_and(|own| own.ends_with(&ours));
            is_ours && words.nth(1) == Some(ESTABLISHED)
        });
        count += server_ends.count() as u64;
    }
    Ok(count)
}

#[cfg(any(feature = "redis", feature = "zk"))]
fn number(text: &str, name: &str) -> Result<u64, Stop> {
    let value =
        text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in the answer"))?;
    Ok(value.trim().parse()?)
}
