//! The proxy does what its cases rely on.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use conformance_tests::proxy::{Announcer, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

const SOON: Duration = Duration::from_millis(150);

/// A server that answers each byte with the same byte, and tells what it has received.
async fn echo() -> io::Result<(SocketAddr, mpsc::Receiver<u8>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let (seen, received) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    let _ = seen.send(byte).await;
                    let _ = stream.write_u8(byte).await;
                }
            });
        }
    });
    Ok((address, received))
}

async fn ask(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
    stream.write_u8(byte).await?;
    timeout(SOON, stream.read_u8()).await?
}

fn kind<T>(answer: io::Result<T>) -> Option<io::ErrorKind> {
    answer.err().map(|e| e.kind())
}

#[tokio::test]
async fn it_forwards_counts_and_delays() -> io::Result<()> {
    let (server, _received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, 1).await?, 1);
    assert_eq!((proxy.requests(), proxy.accepted(), proxy.open()), (1, 1, 1));
    proxy.delay_requests(Duration::from_millis(50));
    proxy.delay_replies(Duration::from_millis(60));
    let start = Instant::now();
    assert_eq!(ask(&mut client, 2).await?, 2);
    assert!(start.elapsed() >= Duration::from_millis(110), "{:?}", start.elapsed());
    drop(client);
    sleep(SOON).await;
    assert_eq!(proxy.open(), 0);
    Ok(())
}

#[tokio::test]
async fn it_resets_and_refuses() -> io::Result<()> {
    let (server, _received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, 1).await?, 1);
    proxy.cut();
    assert_eq!(kind(timeout(SOON, client.read_u8()).await?), Some(io::ErrorKind::ConnectionReset));
    proxy.refuse(true);
    let refused = async { ask(&mut TcpStream::connect(proxy.address()).await?, 1).await };
    assert!(refused.await.is_err());
    proxy.refuse(false);
    assert_eq!(ask(&mut TcpStream::connect(proxy.address()).await?, 1).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_black_hole_is_silent_and_ends() -> io::Result<()> {
    let (server, mut received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    proxy.black_hole(true);
    assert_eq!(kind(ask(&mut client, 7).await), Some(io::ErrorKind::TimedOut));
    assert!(received.try_recv().is_err(), "it reached the server");
    proxy.black_hole(false);
    assert_eq!(timeout(SOON, client.read_u8()).await??, 7);
    Ok(())
}

#[tokio::test]
async fn the_reply_is_swallowed_after_the_request_went_through() -> io::Result<()> {
    let (server, mut received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    proxy.cut_after_request(true);
    assert_eq!(kind(ask(&mut client, 9).await), Some(io::ErrorKind::ConnectionReset));
    assert_eq!(received.recv().await, Some(9));
    Ok(())
}

#[tokio::test]
async fn a_request_is_delivered_though_its_client_is_gone() -> io::Result<()> {
    let (server, mut received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut client = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut client, 1).await?, 1);
    assert_eq!(received.recv().await, Some(1));
    proxy.hold_requests_of_open();
    client.write_u8(2).await?;
    sleep(SOON).await;
    drop(client);
    // A new connection overtakes the request that is held back.
    assert_eq!(ask(&mut TcpStream::connect(proxy.address()).await?, 3).await?, 3);
    assert_eq!(received.recv().await, Some(3));
    assert!(received.try_recv().is_err(), "it was not held back");
    proxy.hold_requests(false);
    assert_eq!(timeout(SOON, received.recv()).await?, Some(2));
    Ok(())
}

#[tokio::test]
async fn forgotten_connections_stay_dark() -> io::Result<()> {
    let (server, _received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    let mut old = TcpStream::connect(proxy.address()).await?;
    assert_eq!(ask(&mut old, 1).await?, 1);
    proxy.forget_open();
    assert_eq!(kind(ask(&mut old, 2).await), Some(io::ErrorKind::TimedOut));
    assert_eq!(ask(&mut TcpStream::connect(proxy.address()).await?, 3).await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_trickle_arrives_byte_by_byte() -> io::Result<()> {
    let (server, _received) = echo().await?;
    let proxy = Proxy::start(server).await?;
    proxy.trickle(true);
    let mut client = TcpStream::connect(proxy.address()).await?;
    client.write_all(&[5; 50]).await?;
    let start = Instant::now();
    client.read_exact(&mut [0; 50]).await?;
    assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    Ok(())
}

/// A server that greets with what it is told to say.
async fn greeting(text: String) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    Ok(address)
}

async fn greeted(address: SocketAddr) -> io::Result<String> {
    let mut text = String::new();
    timeout(SOON * 10, TcpStream::connect(address).await?.read_to_string(&mut text)).await??;
    Ok(text)
}

#[tokio::test]
async fn it_stays_before_servers_that_send_clients_to_each_other() -> io::Result<()> {
    let announced = SocketAddr::from(([127, 0, 1, 2], 54321));
    let forms = |at: SocketAddr| {
        let (ip, port) = (at.ip(), at.port());
        format!(
            "-MOVED 7 {at}\r\n*2\r\n$9\r\n{ip}\r\n:{port}\r\n$9\r\n{ip}\r\n$5\r\n{port}\r\n$15\r\n127.0.1.2:54320\r\n"
        )
    };
    let first = Announcer { server: greeting(forms(announced)).await?, announced: ([127, 0, 1, 1], 54321).into() };
    let second = Announcer { server: greeting("second".into()).await?, announced };
    let proxy = Proxy::before(&[first, second]).await?;
    let told = greeted(proxy.address()).await?;
    let port = told.lines().next().and_then(|moved| moved.rsplit_once(':')).and_then(|(_, port)| port.parse().ok());
    let next = SocketAddr::from(([127, 0, 0, 1], port.unwrap_or(0)));
    assert_eq!(told, forms(next), "each form leads to the proxy, and what is not announced stays");
    assert_eq!(greeted(next).await?, "second");
    proxy.refuse(true);
    assert!(greeted(proxy.address()).await.is_err() && greeted(next).await.is_err(), "its rules hold for all");
    let long = Announcer { announced: ([127, 0, 0, 100], 54321).into(), ..second };
    assert!(Proxy::before(&[first, long]).await.is_err());
    Ok(())
}
