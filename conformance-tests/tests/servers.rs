//! The servers obey, and nothing outlives the suite.
#![cfg(feature = "redis")]

use std::process::Command;
use std::time::Duration;

use conformance_tests::process::Process;
use conformance_tests::servers::redis::RedisServer;
use conformance_tests::{Server, Stop, ensure, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn answers(port: u16) -> bool {
    let ping = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer == *b"+PONG\r\n")
    };
    timeout(Duration::from_millis(300), ping).await.is_ok_and(|pong| pong == Some(true))
}

#[tokio::test]
async fn a_server_stops_goes_on_dies_and_comes_back() -> Result<(), Stop> {
    let server = RedisServer::start(&[]).await?;
    ensure!(answers(server.port()).await, "it does not answer");
    server.stop()?;
    ensure!(!answers(server.port()).await, "it answers although it was stopped");
    server.resume()?;
    ensure!(answers(server.port()).await, "it does not go on");
    server.kill()?;
    ensure!(!answers(server.port()).await, "it answers although it was killed");
    server.restart().await?;
    ensure!(answers(server.port()).await, "it does not come back");
    let port = server.port();
    drop(server);
    ensure!(!answers(port).await, "it outlived its handle");
    Ok(())
}

#[tokio::test]
async fn a_process_dies_with_its_handle() -> Result<(), Stop> {
    let mut command = Command::new("sleep");
    command.arg("60");
    let process = Process::spawn(command)?;
    let pid = process.id();
    ensure!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "it does not run");
    drop(process);
    let gone = || async { !std::path::Path::new(&format!("/proc/{pid}")).exists() };
    ensure!(eventually(Duration::from_secs(2), gone).await, "it outlived its handle");
    Ok(())
}
