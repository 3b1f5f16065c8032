//! Fetches of blocks that are under way in a shard, so that reads which miss the same block share one.

use std::rc::Rc;

use futures::future::{LocalBoxFuture, Shared};
use hashbrown::HashMap;

use crate::table::{BlockKey, FetchedBlocks, TableError};

/// A fetch that several reads may wait for.
pub(super) type Fetch = Shared<LocalBoxFuture<'static, Result<Rc<FetchedBlocks>, TableError>>>;

/// By the block that was missing.
pub(super) type Fetches = HashMap<BlockKey, Fetch>;
