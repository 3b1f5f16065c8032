//! Building a view over the rows that are there, slice by slice, while clients write.
//!
//! What is written since the log of the base table is kept comes by the log; what was written before is scanned. So the scan begins when all
//! members know the log, and writes that were begun before are over. It goes through the base table and then through the table of origins, which
//! has rows where a view is built again: each unit is recomputed. Where it is, is stored with the positions.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_views::computation::Values;

use crate::internal_statement::NextPage;
use crate::live_view::{LEVEL, LiveView, page};
use crate::pass::recompute_all;
use crate::positions::{self, Position};
use crate::state::{SliceState, ViewsState};
use crate::timers;
use crate::unit::stored_unit;

/// The scan of a view in a slice.
#[derive(Debug)]
pub struct Build {
    scanned: Scanned,
    /// Behind which row it goes on: a paging state.
    resume: Option<Vec<u8>>,
}

/// What is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scanned {
    Base = 0,
    Origins = 1,
}

impl Build {
    /// Goes on where the last holder was.
    pub fn from(position: &Position) -> Self {
        match position.resume.as_deref().and_then(<[u8]>::split_first) {
            Some((0, rest)) if !rest.is_empty() => {
                Self { scanned: Scanned::Base, resume: Some(rest.to_vec()) }
            }
            Some((1, rest)) => {
                Self { scanned: Scanned::Origins, resume: (!rest.is_empty()).then(|| rest.to_vec()) }
            }
            _ => Self { scanned: Scanned::Base, resume: None },
        }
    }

    fn position(&self, view: &LiveView) -> Position {
        let resume = [&[self.scanned as u8][..], self.resume.as_deref().unwrap_or_default()].concat();
        Position { resume: Some(resume), build: view.build(), ..Position::default() }
    }

    /// Recomputes the units of a page. Returns whether the view is built in this slice, which is stored then.
    pub async fn step(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        view: &LiveView,
    ) -> Result<bool> {
        let statement = match self.scanned {
            Scanned::Base => &view.scan_base,
            Scanned::Origins => &view.scan_origins,
        };
        let (from, to) = slice.lease.slice.tokens();
        let values = vec![Some(from.to_be_bytes().to_vec()), Some(to.to_be_bytes().to_vec())];
        let from = self.resume.clone().map(NextPage::of_bytes);
        let (units, next) = match page(context, statement, &values, from).await {
            // The place of another version of the statement: the scan begins anew.
            Err(RequestError::Protocol(_)) if self.resume.is_some() => {
                self.resume = None;
                return Ok(false);
            }
            read => read?,
        };
        // A partition with nothing but static columns has a row without clustering columns.
        let is_row = |unit: &Values| unit.iter().all(Option::is_some);
        let units: Vec<Values> = units.into_iter().filter(is_row).collect();
        let count = units.len() as u64;
        self.set_timers(context, slice, view, &units).await?;
        recompute_all(context, view, units.into_iter().collect::<BTreeSet<_>>(), slice).await?;
        *slice.scanned.borrow_mut().entry(view.build_id()).or_default() += count;
        let statements = &ViewsState::of(context).positions;
        let id = view.table().id;
        match (next, self.scanned) {
            (Some(next), _) => self.resume = Some(next.into_bytes()),
            (None, Scanned::Base) => (self.scanned, self.resume) = (Scanned::Origins, None),
            (None, Scanned::Origins) => {
                let done = Position { is_done: true, build: view.build(), ..Position::default() };
                positions::write(context, statements, id, &slice.lease, &done).await?;
                return Ok(true);
            }
        }
        positions::write(context, statements, id, &slice.lease, &self.position(view)).await?;
        Ok(false)
    }

    /// What was written with a time to live before the view was made has no entry in the log: its timers are set here.
    async fn set_timers(
        &self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        view: &LiveView,
        units: &[Values],
    ) -> Result<()> {
        let Some(read_times) = view.read_times.as_ref().filter(|_| self.scanned == Scanned::Base) else {
            return Ok(());
        };
        let now = i64::from(context.now_seconds());
        let base = view.base();
        let mut timers = BTreeSet::new();
        for unit in units {
            let (key, _) = stored_unit(base, unit)?;
            let clustering = unit[base.partition_key_count..].to_vec();
            let each = |row: &[Option<&[u8]>]| {
                let seconds = row.iter().flatten().filter_map(|ttl| <[u8; 4]>::try_from(*ttl).ok());
                let due =
                    seconds.map(|seconds| now.saturating_add(i64::from(i32::from_be_bytes(seconds))) + 2);
                timers.extend(due.map(|due| (due, key.bytes.clone(), clustering.clone())));
                Ok(ControlFlow::Continue(()))
            };
            read_times.rows(context, unit, LEVEL, each).await?;
        }
        timers::write(context, &ViewsState::of(context).timers, base, slice.lease.slice, timers).await
    }
}
