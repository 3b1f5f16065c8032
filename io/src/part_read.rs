//! A read of a part of a file that waits to be carried out.

use std::fs::File;
use std::io;
use std::sync::Arc;

use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct PartRead {
    pub file: Arc<File>,
    pub offset: u64,
    /// Bytes.
    pub length: usize,
    pub answer: oneshot::Sender<io::Result<Box<[u8]>>>,
}

impl PartRead {
    /// Ends the read. Its reader may have been dropped meanwhile.
    pub fn end(self, outcome: io::Result<Box<[u8]>>) {
        drop(self.answer.send(outcome));
    }
}
