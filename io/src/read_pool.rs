//! Reads of parts of files beside a shard's thread, so that a read from the disk holds up neither the shard nor other reads: through the
//! kernel's `io_uring` where it is permitted ([`super::read_ring`]), else by threads that each carry out one read at a time.
#![allow(clippy::disallowed_methods, reason = "this is a place that starts threads for reads")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::oneshot;

use super::part_read::PartRead;
use super::read_ring::ReadRing;

/// A handle on what carries out reads. Clones share it. When the last one is dropped, what is queued is still carried out.
#[derive(Debug, Clone)]
pub struct ReadPool {
    carrier: Carrier,
}

#[derive(Debug, Clone)]
enum Carrier {
    Ring(ReadRing),
    Threads(Sender<PartRead>),
}

impl ReadPool {
    /// Reads through `io_uring`, or, where it is not there or not permitted, by `threads` threads (at least one).
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::ring().or_else(|error| {
            tracing::debug!(%error, threads, "io_uring cannot be used; threads read from the disk instead");
            Self::threads(threads)
        })
    }

    /// Reads through `io_uring`.
    pub fn ring() -> io::Result<Self> {
        Ok(Self { carrier: Carrier::Ring(ReadRing::start()?) })
    }

    /// Reads by `threads` threads (at least one), each of which carries out one read at a time.
    pub fn threads(threads: usize) -> io::Result<Self> {
        let (queue, reads) = channel();
        let reads = Arc::new(Mutex::new(reads));
        for number in 0..threads.max(1) {
            let reads = Arc::clone(&reads);
            thread::Builder::new().name(format!("read-{number}")).spawn(move || carry_out(&reads))?;
        }
        Ok(Self { carrier: Carrier::Threads(queue) })
    }

    /// Reads `length` bytes at `offset`.
    pub(super) fn read(
        &self,
        file: Arc<File>,
        offset: u64,
        length: usize,
    ) -> impl Future<Output = io::Result<Box<[u8]>>> + use<> {
        let (answer, result) = oneshot::channel();
        let read = PartRead { file, offset, length, answer };
        let is_sent = match &self.carrier {
            Carrier::Ring(ring) => ring.send(read),
            Carrier::Threads(queue) => queue.send(read).is_ok(),
        };
        async move {
            let stopped = || io::Error::new(io::ErrorKind::BrokenPipe, "what carries out reads has stopped");
            if is_sent { result.await.unwrap_or_else(|_| Err(stopped())) } else { Err(stopped()) }
        }
    }
}

fn carry_out(reads: &Mutex<Receiver<PartRead>>) {
    loop {
        // The lock is held only while waiting for one read; a poisoned lock means another thread died in `recv`.
        let next = match reads.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return,
        };
        let Ok(read) = next else { return };
        let mut bytes = vec![0; read.length].into_boxed_slice();
        let outcome = read.file.read_exact_at(&mut bytes, read.offset).map(|()| bytes);
        read.end(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_of(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    /// Both ways to read; the ring only where the kernel permits it.
    fn pools() -> Vec<ReadPool> {
        let mut pools = vec![ReadPool::threads(3).unwrap()];
        match ReadPool::ring() {
            Ok(ring) => pools.push(ring),
            Err(error) => println!("not run: io_uring: {error}"),
        }
        pools
    }

    #[test]
    fn every_read_gets_its_bytes() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| (number * 7 / 3) as u8).collect();
        let file = file_of(&bytes);
        for pool in pools() {
            let spans: Vec<(usize, usize)> =
                (0..2_000).map(|number| (number * 487 % 990_000, 1 + number * 31 % 9_000)).collect();
            let reads = spans.iter().map(|(offset, length)| {
                let length = (*length).min(bytes.len() - offset);
                pool.read(Arc::clone(&file), *offset as u64, length)
            });
            let read = futures::executor::block_on(futures::future::join_all(reads));
            for ((offset, _), part) in spans.iter().zip(read) {
                let part = part.unwrap();
                assert!(part[..] == bytes[*offset..offset + part.len()]);
            }
            let empty = futures::executor::block_on(pool.read(Arc::clone(&file), 5, 0)).unwrap();
            assert!(empty.is_empty());
        }
    }

    #[test]
    fn a_read_behind_the_end_is_an_error() {
        let file = file_of(b"short");
        for pool in pools() {
            for (offset, length) in [(0, 6), (5, 1), (1_000, 10)] {
                let read = futures::executor::block_on(pool.read(Arc::clone(&file), offset, length));
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }

    #[test]
    fn reads_that_nobody_waits_for_and_handles_that_go_do_no_harm() {
        let file = file_of(&vec![7; 100_000]);
        for pool in pools() {
            for offset in 0..500 {
                drop(pool.read(Arc::clone(&file), offset, 10_000));
            }
            let clone = pool.clone();
            drop(pool);
            let last = futures::executor::block_on(clone.read(Arc::clone(&file), 0, 3)).unwrap();
            assert_eq!(*last, [7; 3]);
        }
        // The threads drop the file when they are done.
        while Arc::strong_count(&file) > 1 {
            thread::yield_now();
        }
    }
}
