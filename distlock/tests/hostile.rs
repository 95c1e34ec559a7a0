//! Servers that lie: garbage, floods, endless and huge answers, one byte a second. The tool gets its error in time and in one line, stays small, and runs nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Ended, Lab};

/// What the tool is told to wait for the lock, the bound on a connection before that, and time for a busy machine.
const BOUND: Duration = Duration::from_secs(2 + 5 + 15);
/// A tool without any trouble takes about 20 MiB.
const MOST_KIB: u64 = 160 * 1024;
/// How many tools run at a time: what they do is waiting.
const AT_ONCE: usize = 4;

/// What a server does with each connection.
#[derive(Clone, Copy)]
enum Lie {
    Closes,
    /// These bytes, and then nothing more.
    Says(&'static [u8]),
    /// The first bytes, and then the second ones for ever.
    Floods(&'static [u8], &'static [u8]),
    /// The same, and no faster than 4 MiB a second: the driver keeps all of it, for as long as its time lasts (see the backends' pages).
    Pours(&'static [u8], &'static [u8]),
    /// These bytes, one a second.
    Trickles(&'static [u8]),
    /// These bytes whenever something was asked.
    Answers(&'static [u8]),
    /// The first bytes as a greeting, and the second ones whenever something was asked.
    Greets(&'static [u8], &'static [u8]),
}

/// A server that lies, until it is dropped.
struct Liar {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Liar {
    fn start(lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, over) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let ended = ended.clone();
                // Whoever hangs up has heard enough.
                std::thread::spawn(move || tell(lie, stream?, &ended));
            }
        });
        Self { port, over }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn tell(lie: Lie, mut stream: TcpStream, over: &AtomicBool) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    match lie {
        Lie::Closes => return Ok(()),
        Lie::Says(bytes) => stream.write_all(bytes)?,
        Lie::Floods(first, then) | Lie::Pours(first, then) => {
            stream.write_all(first)?;
            let piece = then.repeat((64 * 1024 / then.len()).max(1));
            let mut at = 0;
            while !over.load(Ordering::Relaxed) {
                if matches!(lie, Lie::Pours(..)) {
                    std::thread::sleep(Duration::from_millis(15));
                }
                match stream.write(&piece[at..]) {
                    Ok(sent) => at = (at + sent) % piece.len(),
                    Err(e) if is_slow(&e) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Lie::Trickles(bytes) => {
            for byte in bytes.iter().cycle() {
                stream.write_all(&[*byte])?;
                rest(Duration::from_secs(1), over);
                if over.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Lie::Answers(bytes) => answer(&mut stream, bytes, over)?,
        Lie::Greets(greeting, bytes) => {
            stream.write_all(greeting)?;
            answer(&mut stream, bytes, over)?;
        }
    }
    rest(BOUND, over);
    Ok(())
}

fn answer(stream: &mut TcpStream, bytes: &[u8], over: &AtomicBool) -> std::io::Result<()> {
    let mut heard = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut heard) {
            Ok(0) => return Ok(()),
            Ok(length) => stream.write_all(&bytes.repeat(requests(&heard[..length])))?,
            Err(e) if is_slow(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// How many requests came at once. Only Redis' clients send several before they hear of the first.
fn requests(heard: &[u8]) -> usize {
    let lists = heard.split(|b| *b == b'\n').filter(|line| line.starts_with(b"*")).count();
    if heard.starts_with(b"*") { lists } else { 1 }
}

fn is_slow(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn rest(span: Duration, over: &AtomicBool) {
    let start = Instant::now();
    while start.elapsed() < span && !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What every protocol is told.
fn common() -> Vec<(&'static str, Lie)> {
    vec![
        ("closes at once", Lie::Closes),
        ("garbage", Lie::Says(&GARBAGE)),
        ("a flood of garbage", Lie::Floods(&[], &GARBAGE)),
        ("a flood of zeroes", Lie::Floods(&[], &[0; 1024])),
        ("a flood of 0xFF", Lie::Pours(&[], &[0xFF; 1024])),
        ("one byte a second", Lie::Trickles(&GARBAGE)),
        ("garbage for each request", Lie::Answers(&GARBAGE)),
        ("another protocol", Lie::Answers(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 99999999999\r\n\r\n")),
    ]
}

/// The same in each run.
static GARBAGE: [u8; 4096] = {
    let (mut bytes, mut state, mut i) = ([0; 4096], 0x9e37_79b9_u32, 0);
    while i < bytes.len() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        bytes[i] = (state >> 11) as u8;
        i += 1;
    }
    bytes
};

/// Runs the tool against each, `AT_ONCE` at a time.
fn lie_to(url: impl Fn(u16) -> String + Sync, lies: Vec<(&'static str, Lie)>) {
    let (lies, faults) = (Mutex::new(lies.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((what, lie)) = { lies.lock().unwrap().next() } {
                    let liar = Liar::start(lie);
                    let lab = Lab::at(url(liar.port));
                    let start = Instant::now();
                    let (ended, most) = watched(&lab, &["run", "jobs/x", "--wait", "2s", "--", "touch", "ran"]);
                    let took = start.elapsed();
                    println!(
                        "{what}: {:?} after {took:.1?} with {} MiB: {}",
                        ended.status.code(),
                        most / 1024,
                        ended.err.trim_end()
                    );
                    let ran = lab.path("ran").exists();
                    let clean = ended.err.lines().count() == 1 && ended.err.trim_end().chars().all(is_harmless);
                    let good = matches!(ended.status.code(), Some(69 | 70 | 77 | 78 | 124)) && clean && !ran;
                    if !good || took > BOUND || most > MOST_KIB {
                        faults.lock().unwrap().push(format!("{what}: {took:?}, {most} KiB, ran: {ran}, {ended:?}"));
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// No control, no direction, nothing that a terminal obeys.
fn is_harmless(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Runs the tool to its end and answers the greatest size it had, in KiB.
fn watched(lab: &Lab, args: &[&str]) -> (Ended, u64) {
    let mut running = lab.start(args);
    let status = format!("/proc/{}/status", running.pid());
    let (mut most, start) = (0, Instant::now());
    while !running.is_over() && start.elapsed() < 2 * BOUND && most <= 2 * MOST_KIB {
        let text = common::read(&status);
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    if !running.is_over() {
        // Before it takes the machine down.
        running.signal(nix::sys::signal::Signal::SIGKILL);
    }
    (running.wait(), most)
}

#[test]
fn redis() {
    let mut lies = common();
    lies.extend([
        ("a huge text", Lie::Pours(b"$2147483647\r\n", b"x")),
        ("a text longer than any memory", Lie::Pours(b"$9223372036854775807\r\n", b"x")),
        ("a huge list", Lie::Floods(b"*1000000000\r\n", b":1\r\n")),
        ("a list in a list in a list", Lie::Floods(b"", b"*1\r\n")),
        ("a huge map", Lie::Floods(b"%1000000000\r\n", b"+a\r\n:1\r\n")),
        ("a line without an end", Lie::Floods(b"+", b"x")),
        ("an endless number", Lie::Floods(b":", b"1")),
        ("answers that nobody asked for", Lie::Floods(b"", b"+OK\r\n")),
        ("pushes that nobody asked for", Lie::Floods(b"", b">2\r\n+message\r\n+x\r\n")),
        ("a negative length", Lie::Answers(b"$-5\r\n")),
        // A positive one would be a grant: whoever keeps the locks can lie about them.
        ("a number for each request", Lie::Answers(b":-1\r\n")),
        ("OK for each request", Lie::Answers(b"+OK\r\n")),
        ("a list for each request", Lie::Answers(b"*2\r\n$1\r\na\r\n*0\r\n")),
        ("an error that paints", Lie::Answers("-ERR \x1b[2J\u{9b}31m\u{202e}\x07 forged\r\n".as_bytes())),
    ]);
    lie_to(|port| format!("redis://127.0.0.1:{port}/"), lies);
}

/// A greeting as a server of the protocol 10 gives it.
const MYSQL: &[u8] = b"\x59\0\0\0\x0a5.5.5-10.11.0-MariaDB\0\x01\0\0\0abcdefgh\0\xff\xf7\x08\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0mysql_native_password\0";
const MYSQL_OK: &[u8] = b"\x07\0\0\x02\0\0\0\x02\0\0\0";

#[test]
fn mysql() {
    let mut lies = common();
    lies.extend([
        ("packets of 16 MiB in a chain", Lie::Pours(b"\xff\xff\xff\0", b"\xff")),
        ("a packet of 16 MiB", Lie::Floods(b"\xfe\xff\xff\0", b"x")),
        ("empty packets", Lie::Floods(b"", b"\0\0\0\0")),
        ("a greeting and garbage", Lie::Greets(MYSQL, &GARBAGE)),
        ("OK to everything", Lie::Greets(MYSQL, MYSQL_OK)),
        ("a greeting and a flood", Lie::Floods(MYSQL, b"\xff\xff\xff\x02\xff")),
        ("a huge number of columns", Lie::Greets(MYSQL, b"\x09\0\0\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")),
        ("an error that paints", Lie::Greets(MYSQL, b"\x17\0\0\x02\xff\x15\x04#28000\x1b[2J\xe2\x80\xae forged")),
        ("a greeting that paints", Lie::Says(b"\x17\0\0\0\xff\x10\x04\x1b[2J\x1b[31m forged\n\nforged")),
    ]);
    lie_to(|port| format!("mysql://app:pw@127.0.0.1:{port}/locks"), lies);
}

#[test]
fn zk() {
    let mut lies = common();
    lies.extend([
        ("a frame of 2 GiB", Lie::Pours(b"\x7f\xff\xff\xff", b"x")),
        ("a frame of 64 MiB", Lie::Pours(b"\x04\0\0\0", b"x")),
        ("a negative length", Lie::Answers(b"\xff\xff\xff\xff")),
        ("empty frames", Lie::Floods(b"", b"\0\0\0\0")),
        ("a session and garbage", Lie::Answers(&SESSION)),
        (
            "a session with a huge password",
            Lie::Answers(b"\0\0\0\x14\0\0\0\0\0\0\x75\x30\0\0\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        ),
        ("a session and a flood", Lie::Pours(&SESSION, b"\x7f\xff\xff\xff")),
        (
            "a time-out that is negative",
            Lie::Answers(b"\0\0\0\x25\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\x01\0\0\0\x10abcdefghijklmnop\0"),
        ),
    ]);
    lie_to(|port| format!("zk://127.0.0.1:{port}/locks"), lies);
}

/// What a server answers to a new session.
const SESSION: [u8; 41] = *b"\0\0\0\x25\0\0\0\0\0\0\x75\x30\0\0\0\0\0\0\0\x01\0\0\0\x10abcdefghijklmnop\0";

/// An HTTP/2 server's first frame, without settings.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[test]
fn etcd() {
    let mut lies = common();
    lies.extend([
        ("a frame of 16 MiB", Lie::Floods(b"\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01", b"x")),
        ("settings without end", Lie::Floods(b"", SETTINGS)),
        ("pings without end", Lie::Floods(SETTINGS, b"\0\0\x08\x06\0\0\0\0\0abcdefgh")),
        (
            "headers without end",
            Lie::Floods(b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x88", b"\0\0\x04\x09\0\0\0\0\x01\x40\x01a\0"),
        ),
        (
            "an answer without a status",
            Lie::Floods(
                b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88",
                b"\0\0\x05\0\0\0\0\0\x01\0\x7f\xff\xff\xff",
            ),
        ),
        (
            "a message of 2 GiB",
            Lie::Greets(
                SETTINGS,
                b"\0\0\x11\x01\x04\0\0\0\x01\x88\x5f\x10application/grp\0\0\x05\0\0\0\0\0\x01\0\x7f\xff\xff\xff",
            ),
        ),
        ("goes away", Lie::Greets(SETTINGS, b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x02")),
        ("resets everything", Lie::Greets(SETTINGS, b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02")),
    ]);
    lie_to(|port| format!("etcd://127.0.0.1:{port}"), lies);
}
