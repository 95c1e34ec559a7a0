//! The resource that the locks guard: it lives in the parent, takes the token with each write, and remembers all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lock_core::fence::Register;
use lock_core::{Clock, FencingToken};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::history::nanos;
use super::record::Guarded;
use crate::Stop;

#[derive(Debug, Default)]
struct Book {
    registers: HashMap<String, Register<u64>>,
    writes: Vec<Guarded>,
    grants: u64,
    refused: usize,
    newest: HashMap<String, u64>,
}

/// The registers of all names, behind a socket.
#[derive(Debug)]
pub(super) struct Registers {
    book: Arc<Mutex<Book>>,
    address: String,
    listener: JoinHandle<()>,
}

impl Registers {
    pub(super) async fn open() -> Result<Self, Stop> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?.to_string();
        let book = Arc::<Mutex<Book>>::default();
        let shared = Arc::clone(&book);
        let listener = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self { book, address, listener })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// How many grants have written so far.
    pub(super) fn grants(&self) -> u64 {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).grants
    }

    /// How many writes were refused so far.
    pub(super) fn refused(&self) -> usize {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    /// All writes so far, in the order in which they came.
    pub(super) fn so_far(&self) -> Vec<Guarded> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).writes.clone()
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A line that is no write, or an end, ends the connection.
async fn serve(stream: TcpStream, book: Arc<Mutex<Book>>) -> Option<()> {
    let _ = stream.set_nodelay(true);
    let (read, mut write) = stream.into_split();
    let (mut lines, clock) = (BufReader::new(read).lines(), Clock::system());
    loop {
        let line = lines.next_line().await.ok()??;
        let (token, name) = line.split_once(' ')?;
        let token: u64 = token.parse().ok()?;
        let taken = {
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            // Under one lock with the write, so that the order of the list is that of the register.
            let taken =
                book.registers.entry(name.to_owned()).or_default().write(FencingToken::new(token), token).is_ok();
            if book.newest.get(name) != Some(&token) {
                book.grants += 1;
                book.newest.insert(name.to_owned(), token);
            }
            book.refused += usize::from(!taken);
            book.writes.push(Guarded { at: nanos(clock.now()), name: name.to_owned(), token, taken });
            taken
        };
        write.write_all(if taken { b"1\n" } else { b"0\n" }).await.ok()?;
    }
}

/// A worker's line to the register.
#[derive(Debug)]
pub(super) struct Pen {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Pen {
    pub(super) async fn connect(address: &str) -> Result<Self, Stop> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Self { read: BufReader::new(read), write })
    }

    /// Writes under a token; whether the register took it.
    pub(super) async fn write(&mut self, name: &str, token: u64) -> Result<bool, Stop> {
        self.write.write_all(format!("{token} {name}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.read.read_line(&mut answer).await?;
        Ok(answer == "1\n")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn an_older_token_is_refused_and_remembered() {
        let registers = Registers::open().await.map_err(|_| ()).unwrap();
        let mut pen = Pen::connect(registers.address()).await.map_err(|_| ()).unwrap();
        let mut taken = Vec::new();
        for (name, token) in [("a", 2), ("a", 2), ("b", 1), ("a", 1), ("a", 3)] {
            taken.push(pen.write(name, token).await.map_err(|_| ()).unwrap());
        }
        assert_eq!(taken, [true, true, true, false, true]);
        assert_eq!((registers.refused(), registers.grants()), (1, 4));
        assert_eq!(registers.so_far().len(), 5);
    }
}
