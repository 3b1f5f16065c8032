//! The memory for large frames of clients that are not in whole yet, over all connections of a node.
//!
//! A frame takes memory as its bytes arrive, and a client may stop in the midst of it. So what has arrived of a frame above [`SMALL_BYTES`]
//! counts. One that is longer than the room that others leave is refused with OVERLOADED and skipped as it arrives, like one above the limit
//! for frames; also in the midst of it, when others have taken the room. Nobody waits for room.
//!
//! Invariants:
//! * What is claimed is given back when the frame is in whole, or when its connection ends.
//! * A connection claims no more than it has sent: the header of a large frame claims only its own bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A frame up to this length claims nothing: a connection reads as much at a time.
const SMALL_BYTES: usize = 64 << 10;

/// What the connections of a node have claimed.
#[derive(Debug, Default)]
pub struct PartialFrames(AtomicUsize);

/// The claim of a connection.
#[derive(Debug)]
pub struct FrameClaim {
    all: Arc<PartialFrames>,
    bytes_max: usize,
    claimed_bytes: usize,
}

impl FrameClaim {
    /// `bytes_max`: what all connections together may claim.
    pub fn new(all: Arc<PartialFrames>, bytes_max: usize) -> Self {
        Self { all, bytes_max, claimed_bytes: 0 }
    }

    /// The longest frame for which there is room, the one for which it is claimed included.
    pub fn room_bytes(&self) -> usize {
        let others = self.all.0.load(Ordering::Relaxed).saturating_sub(self.claimed_bytes);
        self.bytes_max.saturating_sub(others).max(SMALL_BYTES)
    }

    /// Says the length of the frame that is not in whole yet (0: there is none), and how much of it is.
    pub fn awaits(&mut self, frame_bytes: usize, arrived_bytes: usize) {
        let wanted = if frame_bytes > SMALL_BYTES { arrived_bytes } else { 0 };
        let before = std::mem::replace(&mut self.claimed_bytes, wanted);
        if wanted != before {
            self.all.0.fetch_add(wanted.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for FrameClaim {
    fn drop(&mut self) {
        self.awaits(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_arrived_of_large_frames_takes_room_until_they_are_in() {
        let all = Arc::new(PartialFrames::default());
        let claim = || FrameClaim::new(all.clone(), 1 << 20);
        let (mut first, mut second) = (claim(), claim());
        first.awaits(900 << 10, 9);
        assert_eq!(second.room_bytes(), (1 << 20) - 9, "a header claims nothing");
        first.awaits(900 << 10, 700 << 10);
        assert_eq!(first.room_bytes(), 1 << 20);
        assert_eq!(second.room_bytes(), 324 << 10);
        second.awaits(301 << 10, 300 << 10);
        assert_eq!(claim().room_bytes(), SMALL_BYTES, "small frames always have room");
        second.awaits(SMALL_BYTES, 100);
        first.awaits(0, 0);
        assert_eq!(second.room_bytes(), 1 << 20);
        first.awaits(900 << 10, 700 << 10);
        drop(first);
        assert_eq!(second.room_bytes(), 1 << 20);
    }
}
