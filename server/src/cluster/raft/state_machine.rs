//! The state machine of the metadata log: applies committed entries to this node in their order.
//!
//! Invariants:
//! * An entry that changes the state counts as applied when the node has installed the new state and the state is on
//!   disk ([`applying::take_over`]).
//! * The snapshot is the applied state. Before one is offered or installed, the file `catalog` has the state as a whole, so that it is never
//!   older than the entries that were purged from the log ([`crate::cluster::stored`]).
//! * What an entry drops is stored with the state that does not name it any more, and leaves the engines afterwards
//!   ([`crate::cluster::drops`]).
//! * Installing a state is retried. Once the first shard has failed, which only a restart heals, the log stops on
//!   this node; the next start continues from the stored state.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use helenus_ring::metadata::{self, Command, FEATURE_VERSION, SCHEMA_DELTAS};
use openraft::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use super::types::{LogId, MetadataTypes, Snapshot, SnapshotMeta, StoredMembership};
use crate::cluster::address_book::AddressBook;
use crate::cluster::applying::{self, SchemaNotice};
use crate::cluster::drops::{self, PendingDrop, PendingDrops};
use crate::cluster::stored::{CATALOG_FILE, CHANGES_FILE, Stored};
use helenus_execution::shard::context::ShardContext;

/// Pause before a state that could not be installed is retried.
const INSTALL_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The state as of the last applied entry.
pub type AppliedState = Rc<RefCell<Stored>>;

/// The log with its state machine, as run by the Raft library.
pub type Raft = openraft::Raft<MetadataTypes, NodeStateMachine>;

/// The applied state of a node.
#[derive(Clone)]
pub struct NodeStateMachine {
    context: Rc<ShardContext>,
    pub applied: AppliedState,
    pub drops: PendingDrops,
    addresses: AddressBook,
    /// The content of the files. The lock is held while one is replaced.
    on_disk: Rc<tokio::sync::Mutex<Option<OnDisk>>>,
}

/// The content of the files.
struct OnDisk {
    /// With the changes.
    stored: Stored,
    drops: Vec<PendingDrop>,
    /// The content of `catalog` alone; `None`: it was written by an earlier process.
    base: Option<Base>,
}

/// The content of the file `catalog`.
struct Base {
    stored: Stored,
    has_drops: bool,
    bytes: usize,
}

/// How a state is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As a whole.
    Whole,
    /// As changes, if they are few and there is no drop to be carried out.
    Changes,
}

/// Changes take at most this, or what makes both files equally expensive: with a change of 2 KiB, the sum of the bytes that are written is
/// least if the changes grow to the root of 2 × 2 KiB × the size of the state before it is written as a whole.
const CHANGES_BYTES_MIN: usize = 32 << 10;

fn changes_bytes_max(base_bytes: usize) -> usize {
    base_bytes.saturating_mul(4 << 10).isqrt().max(CHANGES_BYTES_MIN)
}

impl NodeStateMachine {
    /// `stored`, `drops`: the content of the files.
    pub fn new(
        context: Rc<ShardContext>,
        stored: Option<Stored>,
        drops: Vec<PendingDrop>,
        addresses: AddressBook,
    ) -> Self {
        let applied = stored.clone().unwrap_or_else(Stored::empty);
        let on_disk = stored.map(|stored| OnDisk { stored, drops: drops.clone(), base: None });
        Self {
            context,
            applied: Rc::new(RefCell::new(applied)),
            drops: PendingDrops::new(drops),
            addresses,
            on_disk: Rc::new(tokio::sync::Mutex::new(on_disk)),
        }
    }

    fn applied(&self) -> Stored {
        self.applied.borrow().clone()
    }

    async fn apply_entry(
        &self,
        log_id: LogId,
        command: &Command,
    ) -> Result<metadata::CommandOutcome, io::Error> {
        let old = self.applied();
        let (state, outcome) = metadata::apply(&old.state, log_id.index(), command);
        let new = Stored { state, log_id: Some(log_id), membership: old.membership.clone() };
        if new.state.topology.version == old.state.topology.version {
            *self.applied.borrow_mut() = new;
            return Ok(outcome);
        }
        check_features(&new)?;
        let (notice, form) = match command {
            Command::ChangeSchema(change) | Command::ChangeTables(change) => {
                (SchemaNotice::Event(change.event.clone()), Form::Changes)
            }
            Command::Cleaned { .. } | Command::ChangeRoles { .. } | Command::ChangeDenylist { .. } => {
                (SchemaNotice::Nothing, Form::Changes)
            }
            _ => (SchemaNotice::Nothing, Form::Whole),
        };
        self.take_over(&old, new, notice, form).await?;
        Ok(outcome)
    }

    /// Makes `new` the state of the node.
    async fn take_over(
        &self,
        old: &Stored,
        new: Stored,
        notice: SchemaNotice,
        form: Form,
    ) -> Result<(), io::Error> {
        self.insist(async || self.end_drops_of(&new, old).await).await?;
        let dropped = drops::between(&self.context, &old.state.catalog, &new.state.catalog);
        self.drops.add(dropped.map_err(|error| io::Error::other(error.to_string()))?);
        self.insist(async || {
            let store = self.store(&new, form);
            applying::take_over(&self.context, &self.addresses, &old.state, &new.state, notice.clone(), store)
                .await
        })
        .await?;
        // There is no await between the publication of the version and this: a task that waits for the version reads this state.
        *self.applied.borrow_mut() = new;
        self.drops.try_to_carry_out(&self.context).await;
        Ok(())
    }

    /// Carries out stored drops of tables that `new` has again under their old ids, and stores `old` without them. After a crash they
    /// would drop the new tables.
    async fn end_drops_of(&self, new: &Stored, old: &Stored) -> helenus_query::error::Result<()> {
        let on_disk = self.on_disk.lock().await;
        let is_concerned =
            on_disk.as_ref().is_some_and(|on_disk| drops::is_any_named(&on_disk.drops, &new.state.catalog));
        drop(on_disk);
        if !is_concerned {
            return Ok(());
        }
        self.drops.carry_out(&self.context).await?;
        self.store(old, Form::Whole).await
    }

    /// Retries an operation until it succeeds, or the node stops. An error would end this node's log, and a full
    /// disk, for example, must not take the node out of the cluster for good.
    async fn insist(
        &self,
        attempt: impl AsyncFn() -> helenus_query::error::Result<()>,
    ) -> Result<(), io::Error> {
        while let Err(error) = attempt().await {
            let is_stopping = *self.context.node.stopping.borrow();
            if is_stopping || self.context.shard.failure().is_some() {
                return Err(io::Error::other(error.to_string()));
            }
            tracing::error!(%error, "a change of the cluster could not be installed; it will be retried");
            self.context.clock.sleep(INSTALL_RETRY_PAUSE).await;
        }
        Ok(())
    }

    /// Stores a state as the one that the next start begins with, unless a later one is stored already.
    async fn store(&self, state: &Stored, form: Form) -> helenus_query::error::Result<()> {
        let failed = |error: &dyn std::fmt::Display| {
            helenus_query::error::RequestError::Server(format!(
                "the cluster's state could not be stored: {error}"
            ))
        };
        let mut on_disk = self.on_disk.lock().await;
        let drops = self.drops.under(&state.state.catalog);
        let is_stored = on_disk.as_ref().is_some_and(|on_disk| {
            let is_whole = || on_disk.base.as_ref().is_some_and(|base| base.stored.log_id >= state.log_id);
            (on_disk.stored.log_id > state.log_id
                || (on_disk.stored.log_id == state.log_id && on_disk.drops == drops))
                && (form == Form::Changes || is_whole())
        });
        if is_stored {
            return Ok(());
        }
        // Never an older state than the one that is there, also if it is wanted as a whole.
        let later = on_disk.as_ref().filter(|on_disk| on_disk.stored.log_id > state.log_id);
        let (state, drops) =
            later.map_or((state.clone(), drops), |later| (later.stored.clone(), later.drops.clone()));
        let files = &self.context.node.files;
        let base = on_disk.as_mut().and_then(|on_disk| on_disk.base.take()).filter(|base| {
            // A program that does not know the file of changes refuses a state of this level.
            form == Form::Changes
                && base.stored.state.topology.feature_level >= SCHEMA_DELTAS
                && !base.has_drops
                && drops.is_empty()
        });
        if let Some(base) = base {
            let changes = state.encode_changes(&base.stored).map_err(|error| failed(&error))?;
            if changes.len() <= changes_bytes_max(base.bytes) {
                let replaced = files.replace(CHANGES_FILE, Bytes::from(changes)).await;
                replaced.map_err(|error| failed(&error))?;
                *on_disk = Some(OnDisk { stored: state, drops, base: Some(base) });
                return Ok(());
            }
        }
        let bytes = Bytes::from(state.encode_file(drops.clone()).map_err(|error| failed(&error))?);
        let base = Base { stored: state.clone(), has_drops: !drops.is_empty(), bytes: bytes.len() };
        files.replace(CATALOG_FILE, bytes).await.map_err(|error| failed(&error))?;
        *on_disk = Some(OnDisk { stored: state, drops, base: Some(base) });
        Ok(())
    }
}

/// Refuses a state that may have what this program does not know: the log stops on this node.
fn check_features(new: &Stored) -> Result<(), io::Error> {
    let level = new.state.topology.feature_level;
    if level > FEATURE_VERSION {
        return Err(io::Error::other(format!(
            "the cluster uses features of version {level}, and this program knows them up to version {FEATURE_VERSION}"
        )));
    }
    Ok(())
}

fn snapshot_of(state: &Stored) -> Result<Snapshot, io::Error> {
    Ok(Snapshot { meta: state.meta(), snapshot: state.encode()? })
}

impl RaftSnapshotBuilder<MetadataTypes> for NodeStateMachine {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let state = self.applied();
        self.insist(async || self.store(&state, Form::Whole).await).await?;
        snapshot_of(&state)
    }
}

impl RaftStateMachine<MetadataTypes> for NodeStateMachine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let applied = self.applied.borrow();
        Ok((applied.log_id, applied.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<MetadataTypes>, io::Error>> + Unpin,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let log_id = entry.log_id;
            let outcome = match entry.payload {
                EntryPayload::Normal(command) => Some(self.apply_entry(log_id, &command).await?),
                EntryPayload::Blank => {
                    self.applied.borrow_mut().log_id = Some(log_id);
                    None
                }
                EntryPayload::Membership(membership) => {
                    let mut applied = self.applied.borrow_mut();
                    applied.log_id = Some(log_id);
                    applied.membership = StoredMembership::new(Some(log_id), membership);
                    None
                }
            };
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Vec<u8>) -> Result<(), io::Error> {
        let decoded = Stored::decode(&snapshot).map_err(io::Error::other)?;
        let new = Stored {
            state: decoded.state,
            log_id: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        check_features(&new)?;
        let old = self.applied();
        self.take_over(&old, new, SchemaNotice::Difference, Form::Whole).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let on_disk = self.on_disk.lock().await;
        on_disk.as_ref().map(|on_disk| snapshot_of(&on_disk.stored)).transpose()
    }
}
