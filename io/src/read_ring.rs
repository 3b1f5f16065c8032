//! Reads of parts of files through the kernel's `io_uring`: one thread keeps many of them on their way to the device at once.
//!
//! 1. A reader puts its read into the queue and rings the bell (an eventfd) if the thread sleeps.
//! 2. The thread moves reads from the queue into the ring, up to `DEPTH`, and sleeps until the kernel has finished one or the bell rings:
//!    a read of the bell is always in the ring.
//! 3. What the kernel has finished goes to its reader. A read that was cut short goes into the ring again for the rest.
//!
//! Invariant: the buffer and the file of a read that is in the ring live until the kernel has finished it, whatever else happens. If the
//! thread ends before, they are leaked.
#![allow(clippy::disallowed_methods, reason = "this is a place that starts a thread for reads")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use super::part_read::PartRead;
use crate::invariant::broken;

/// Reads in the ring at once.
const DEPTH: usize = 256;
/// The ring also holds the read of the bell.
const ENTRIES: u32 = (DEPTH * 2) as u32;
const _: () = assert!(ENTRIES.is_power_of_two());
/// Identifies the read of the bell; reads of files have the numbers of their slots.
const BELL: u64 = u64::MAX;

/// The state that readers and the thread share.
#[derive(Debug)]
struct Shared {
    /// `None`: the thread has stopped.
    queue: Mutex<Option<Vec<PartRead>>>,
    bell: OwnedFd,
    is_asleep: AtomicBool,
    /// Handles that may still add reads.
    handles: AtomicUsize,
}

impl Shared {
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // A counter that is full has been rung already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// A handle on the thread; clones share it. When the last one is dropped, the thread finishes what is queued and stops.
#[derive(Debug)]
pub(super) struct ReadRing {
    shared: Arc<Shared>,
}

impl Clone for ReadRing {
    fn clone(&self) -> Self {
        self.shared.handles.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.shared.wake();
        }
    }
}

impl ReadRing {
    /// Starts the thread. An error if the kernel has no `io_uring`, or does not permit it.
    pub fn start() -> io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared {
            queue: Mutex::new(Some(Vec::new())),
            bell,
            is_asleep: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
        });
        let driver = Driver {
            ring,
            shared: Arc::clone(&shared),
            backlog: VecDeque::new(),
            slots: Slots::default(),
            bell_value: Box::new([0; 8]),
            is_bell_in_ring: false,
        };
        thread::Builder::new().name("read-ring".to_owned()).spawn(move || driver.run())?;
        Ok(Self { shared })
    }

    /// Queues a read; false if the thread has stopped.
    pub fn send(&self, read: PartRead) -> bool {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reads) = &mut *queue else { return false };
        reads.push(read);
        drop(queue);
        self.shared.wake();
        true
    }
}

/// A read in the ring.
struct InRing {
    read: PartRead,
    buffer: Box<[u8]>,
    /// Bytes that the kernel has read so far.
    done: usize,
}

/// The reads in the ring by number.
#[derive(Default)]
struct Slots {
    reads: Vec<Option<InRing>>,
    free: Vec<usize>,
    used: usize,
}

impl Slots {
    fn put(&mut self, read: InRing) -> usize {
        self.used += 1;
        if let Some(number) = self.free.pop()
            && let Some(slot) = self.reads.get_mut(number)
        {
            *slot = Some(read);
            return number;
        }
        self.reads.push(Some(read));
        self.reads.len() - 1
    }

    fn take(&mut self, number: usize) -> Option<InRing> {
        let read = self.reads.get_mut(number)?.take()?;
        self.free.push(number);
        self.used -= 1;
        Some(read)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // The kernel may still write into these buffers.
        for read in self.reads.drain(..).flatten() {
            std::mem::forget(read);
        }
    }
}

struct Driver {
    ring: IoUring,
    shared: Arc<Shared>,
    /// Reads that wait for a place in the ring.
    backlog: VecDeque<PartRead>,
    slots: Slots,
    /// Where the kernel writes the value of the bell.
    bell_value: Box<[u8; 8]>,
    is_bell_in_ring: bool,
}

impl Driver {
    fn run(mut self) {
        let outcome = self.turn_until_done().and_then(|()| self.take_bell_out());
        // Readers whose reads are left get an error, because their answers are dropped.
        drop(self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        if self.is_bell_in_ring {
            // The kernel may still write the value.
            std::mem::forget(std::mem::replace(&mut self.bell_value, Box::new([0; 8])));
        }
        if let Err(error) = outcome {
            tracing::error!(%error, "reads through io_uring have stopped");
        }
    }

    /// Ends the read of the bell, into whose buffer the kernel writes.
    fn take_bell_out(&mut self) -> io::Result<()> {
        while self.is_bell_in_ring {
            self.shared.is_asleep.store(true, Ordering::SeqCst);
            self.shared.wake();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.finish()?;
        }
        Ok(())
    }

    fn turn_until_done(&mut self) -> io::Result<()> {
        loop {
            self.shared.is_asleep.store(true, Ordering::SeqCst);
            {
                let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
                self.backlog.extend(queue.iter_mut().flat_map(|reads| reads.drain(..)));
            }
            let is_idle = self.backlog.is_empty() && self.slots.used == 0;
            if is_idle && self.shared.handles.load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            self.fill_ring()?;
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            self.finish()?;
        }
    }

    fn fill_ring(&mut self) -> io::Result<()> {
        if !self.is_bell_in_ring {
            let target = self.bell_value.as_mut_ptr();
            let read = opcode::Read::new(types::Fd(self.shared.bell.as_raw_fd()), target, 8);
            self.push(&read.build().user_data(BELL))?;
            self.is_bell_in_ring = true;
        }
        while self.slots.used < DEPTH
            && let Some(read) = self.backlog.pop_front()
        {
            let buffer = vec![0; read.length].into_boxed_slice();
            self.enter(InRing { read, buffer, done: 0 })?;
        }
        Ok(())
    }

    /// Puts a read, or what is left of it, into the ring.
    fn enter(&mut self, mut read: InRing) -> io::Result<()> {
        let file = types::Fd(read.read.file.as_raw_fd());
        let offset = read.read.offset + read.done as u64;
        let Some(rest) = read.buffer.get_mut(read.done..) else {
            return Err(io::Error::other(broken!("a read has at most the bytes of its buffer")));
        };
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(file, rest.as_mut_ptr(), length).offset(offset);
        let number = self.slots.put(read);
        self.push(&entry.build().user_data(number as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the entry reads into a buffer on the heap that is owned by `self.slots` or `self.bell_value` until its completion was
        // taken, and is leaked if that never happens (`Slots::drop`, `Driver::run`). Its file is owned by the slot's `Arc`, or by `shared`.
        // No other part of the program touches the buffer meanwhile: moving a box does not move its contents.
        #[allow(unsafe_code, reason = "the kernel writes into the buffer; see the argument above")]
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The ring has twice as many places as there are reads in it.
        pushed.map_err(io::Error::other)
    }

    /// Answers the reads that the kernel has finished.
    fn finish(&mut self) -> io::Result<()> {
        let finished: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (number, result) in finished {
            if number == BELL {
                self.is_bell_in_ring = false;
                continue;
            }
            let Some(mut read) = self.slots.take(number as usize) else { continue };
            match usize::try_from(result) {
                Ok(0) if read.done < read.buffer.len() => {
                    read.read.end(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(count) => {
                    read.done += count;
                    if read.done < read.buffer.len() {
                        self.enter(read)?;
                    } else {
                        read.read.end(Ok(read.buffer));
                    }
                }
                Err(_) => {
                    let error = io::Error::from_raw_os_error(-result);
                    if is_passing(&error) {
                        self.enter(read)?;
                    } else {
                        read.read.end(Err(error));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a call was not carried out and may be repeated.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}
