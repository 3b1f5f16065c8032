//! The lease of a slice: only its holder recomputes the rows of views there.
//!
//! Leases are rows of `system_distributed.view_slices`, taken and prolonged by lightweight transactions. A lease is an interval of
//! microseconds on the clocks of the nodes, and the intervals of one slice do not overlap. A holder gives what it writes a timestamp within its
//! interval, so what an earlier holder still has on its way loses against what a later one writes.
//!
//! Invariants:
//! * Timestamps of a slice ascend, also from holder to holder.
//! * A holder stops [`MARGIN_MICROS`] before the end, and the next one waits as long after it: so clocks may differ by twice that.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use uuid::Uuid;

use crate::internal_statement::{InternalStatement, was_applied};

/// How long a lease stands after it was taken or prolonged.
const LEASE_MICROS: i64 = 10_000_000;
/// A holder prolongs its lease when less than this is left of it.
const PROLONGED_MICROS: i64 = 7_000_000;
const MARGIN_MICROS: i64 = 1_000_000;

/// The statements about leases. They belong to one shard.
#[derive(Debug)]
pub struct LeaseStatements {
    read: InternalStatement,
    first: InternalStatement,
    next: InternalStatement,
}

impl Default for LeaseStatements {
    fn default() -> Self {
        Self {
            read: InternalStatement::new(
                "SELECT holder, session, ends_micros FROM system_distributed.view_slices WHERE slice = ?",
            ),
            first: InternalStatement::new(
                "INSERT INTO system_distributed.view_slices (slice, holder, session, ends_micros) VALUES (?, ?, ?, ?) IF NOT EXISTS",
            ),
            next: InternalStatement::new(
                "UPDATE system_distributed.view_slices SET holder = ?, session = ?, ends_micros = ? WHERE slice = ? \
                 IF session = ? AND ends_micros = ?",
            ),
        }
    }
}

/// The holder of a slice, and the end of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub host_id: HostId,
    /// A number for each start of a holder: a node that was restarted does not go on with the lease of before.
    session: Uuid,
    ends_micros: i64,
}

impl Holder {
    /// Whether the lease has ended for whoever had it.
    fn has_ended(&self, now_micros: i64) -> bool {
        now_micros > self.ends_micros.saturating_add(MARGIN_MICROS)
    }
}

/// The lease of a slice, as this shard has it.
#[derive(Debug)]
pub struct Lease {
    pub slice: Slice,
    session: Uuid,
    /// The end of the own lease; 0: there is none.
    ends_micros: Cell<i64>,
    last_timestamp: Cell<i64>,
}

impl Lease {
    pub fn new(context: &ShardContext, slice: Slice) -> Self {
        Self {
            slice,
            session: context.random_uuid(),
            ends_micros: Cell::new(0),
            last_timestamp: Cell::new(i64::MIN),
        }
    }

    /// Whether this shard may write rows of views in the slice.
    pub fn is_held(&self, context: &ShardContext) -> bool {
        self.room(context.clock.now_micros()) > 0 || self.is_kept_for_ever(context)
    }

    /// With a planted bug whoever had the slice once goes on with it.
    fn is_kept_for_ever(&self, context: &ShardContext) -> bool {
        self.ends_micros.get() > 0 && context.has_bug(PlantedBug::ForgetViewLease)
    }

    /// Microseconds that are left of the lease.
    fn room(&self, now_micros: i64) -> i64 {
        self.ends_micros.get() - MARGIN_MICROS - now_micros.max(self.last_timestamp.get())
    }

    /// An error if the lease does not stand any more.
    pub fn check(&self, context: &ShardContext) -> Result<()> {
        if self.is_held(context) { Ok(()) } else { Err(lost(self.slice)) }
    }

    /// The timestamp of the next row, in microseconds.
    pub fn next_timestamp(&self, context: &ShardContext) -> Result<i64> {
        let timestamp = context.clock.now_micros().max(self.last_timestamp.get().saturating_add(1));
        if timestamp >= self.ends_micros.get() - MARGIN_MICROS && !self.is_kept_for_ever(context) {
            return Err(lost(self.slice));
        }
        self.last_timestamp.set(timestamp);
        Ok(timestamp)
    }

    /// Timestamps for some rows, with which any shard of this node may write them as long as the lease stands.
    pub fn grant(&self, context: &ShardContext, rows: usize) -> Result<Grant> {
        let first_timestamp = self.next_timestamp(context)?;
        let last_timestamp = first_timestamp.saturating_add(rows as i64);
        let ends_micros = self.ends_micros.get() - MARGIN_MICROS;
        let is_for_ever = self.is_kept_for_ever(context);
        if last_timestamp >= ends_micros && !is_for_ever {
            return Err(lost(self.slice));
        }
        self.last_timestamp.set(last_timestamp);
        let ends_micros = if is_for_ever { i64::MAX } else { ends_micros };
        Ok(Grant { slice: self.slice, first_timestamp, ends_micros })
    }

    /// Whether the lease is held and need not be prolonged yet.
    pub fn is_long(&self, context: &ShardContext) -> bool {
        self.room(context.clock.now_micros()) > PROLONGED_MICROS
    }

    /// Takes or prolongs the lease where that is possible and needed. `wanted`: whether this node is the one that should have the slice.
    /// Returns who else has it.
    pub async fn keep(
        &self,
        context: &Rc<ShardContext>,
        statements: &LeaseStatements,
        wanted: bool,
    ) -> Result<Option<Holder>> {
        let present = read(context, statements, self.slice).await?;
        let now_micros = context.clock.now_micros();
        let is_own = present.as_ref().is_some_and(|holder| holder.session == self.session);
        // An earlier process of this node writes nothing any more.
        let is_of_before = present.as_ref().is_some_and(|holder| holder.host_id == context.node.host_id);
        if !is_own && !is_of_before && present.as_ref().is_some_and(|holder| !holder.has_ended(now_micros)) {
            if !self.is_kept_for_ever(context) {
                self.ends_micros.set(0);
            }
            return Ok(present);
        }
        if !wanted {
            // It ends by itself. Whoever should have it takes it then.
            return Ok(present.filter(|_| !is_own));
        }
        if !is_own {
            // What the holder before has written is older than its end. It may have been this node, whose clock was set back since.
            let from = present.as_ref().map_or(i64::MIN, |holder| {
                let newest = if is_of_before { now_micros.saturating_add(MARGIN_MICROS) } else { i64::MAX };
                newest.min(holder.ends_micros)
            });
            // Also if it will not be known whether the lease was taken.
            self.last_timestamp.set(from.max(self.last_timestamp.get()));
        }
        let ends_micros = now_micros + LEASE_MICROS;
        let next = [Some(context.node.host_id.as_bytes().to_vec()), Some(self.session.as_bytes().to_vec())];
        let [holder, session] = next;
        let ends = Some(ends_micros.to_be_bytes().to_vec());
        let slice = Some(i32::from(self.slice.0).to_be_bytes().to_vec());
        let outcome = match &present {
            None => {
                statements
                    .first
                    .write(context, &[slice, holder, session, ends], Consistency::Quorum, None)
                    .await?
            }
            Some(known) => {
                let (of_known, ends_of_known) =
                    (known.session.as_bytes().to_vec(), known.ends_micros.to_be_bytes().to_vec());
                let values = [holder, session, ends, slice, Some(of_known), Some(ends_of_known)];
                statements.next.write(context, &values, Consistency::Quorum, None).await?
            }
        };
        if was_applied(&outcome)? == Some(true) {
            if !is_own {
                tracing::debug!(slice = self.slice.0, "this node recomputes the rows of views in a slice");
            }
            self.ends_micros.set(ends_micros);
        } else if !is_own {
            self.ends_micros.set(0);
        }
        Ok(None)
    }

    /// Gives the lease up, without telling others.
    pub fn forget(&self) {
        self.ends_micros.set(0);
    }
}

/// The right to write some rows of views in a slice.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    slice: Slice,
    /// The timestamp of the first row, in microseconds; each row has the next one.
    pub first_timestamp: i64,
    /// Nothing is written from then on.
    ends_micros: i64,
}

impl Grant {
    /// An error if the lease does not stand any more.
    pub fn check(&self, context: &ShardContext) -> Result<()> {
        if context.clock.now_micros() < self.ends_micros { Ok(()) } else { Err(lost(self.slice)) }
    }
}

/// The holder of a slice, if there is one.
pub async fn read(
    context: &Rc<ShardContext>,
    statements: &LeaseStatements,
    slice: Slice,
) -> Result<Option<Holder>> {
    let mut found = None;
    let damaged = || RequestError::Server("system_distributed.view_slices has a damaged row".to_owned());
    let slice = [Some(i32::from(slice.0).to_be_bytes().to_vec())];
    statements
        .read
        .rows(context, &slice, Consistency::Serial, |row| {
            let [Some(host_id), Some(session), Some(ends_micros)] = row else { return Err(damaged()) };
            found = Some(Holder {
                host_id: Uuid::from_slice(host_id).map_err(|_| damaged())?,
                session: Uuid::from_slice(session).map_err(|_| damaged())?,
                ends_micros: i64::from_be_bytes((*ends_micros).try_into().map_err(|_| damaged())?),
            });
            Ok(ControlFlow::Break(()))
        })
        .await?;
    Ok(found)
}

fn lost(slice: Slice) -> RequestError {
    RequestError::Overloaded(format!("this node does not hold slice {} of the views any more", slice.0))
}
