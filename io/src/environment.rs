//! The environment of a shard.

use std::rc::Rc;
use std::sync::Arc;

use super::background::Background;
use super::clock::Clock;
use super::disk::Disk;
use super::random::RandomSource;

/// The environment of a shard: its disk, its clock, the threads for long work, and its randomness.
#[derive(Clone)]
pub struct Environment {
    pub disk: Arc<dyn Disk>,
    pub background: Rc<dyn Background>,
    pub clock: Rc<dyn Clock>,
    pub random: Rc<dyn RandomSource>,
}
