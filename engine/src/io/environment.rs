//! Everything that a shard needs from outside.

use std::rc::Rc;
use std::sync::Arc;

use super::background::Background;
use super::clock::Clock;
use super::disk::Disk;

/// What a shard needs from outside: its disk, its clock and somewhere to run long work.
#[derive(Clone)]
pub struct Environment {
    pub disk: Arc<dyn Disk>,
    pub background: Rc<dyn Background>,
    pub clock: Rc<dyn Clock>,
}
