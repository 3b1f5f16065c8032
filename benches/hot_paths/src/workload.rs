//! What a hot path is for the program that counts its instructions.

use std::error::Error;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

/// What went wrong in a workload; it ends the program.
pub type Failure = Box<dyn Error>;

/// One hot path, ready to run.
pub trait Workload {
    /// Does the operation once. The number decides what it is about; the same one may come again.
    fn operation(&mut self, number: u64) -> Result<(), Failure>;

    /// What the thread does between two batches of operations; not counted.
    fn pause(&mut self) -> LocalBoxFuture<'_, Result<(), Failure>> {
        async { Ok(()) }.boxed_local()
    }
}
