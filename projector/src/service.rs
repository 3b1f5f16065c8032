//! The tasks that keep views true: one for each slice, on the shard to which the slice belongs.
//!
//! As long as there are views, a task sees to the lease of its slice, and while it has it, reads the logs of the followed tables, builds views
//! that are new, and stores how far it is. An error ends a turn; the next one begins where the stored positions are, or the turn before was.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use std::time::Duration;

use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::ServingState;
use helenus_query::error::Result;
use helenus_query::schema::view::CHANGES_TTL_SECONDS;
use helenus_ring::HostId;
use uuid::Uuid;

use crate::arrived::Arrived;
use crate::build::Build;
use crate::live_view::LiveView;
use crate::message::ViewsRequest;
use crate::pass::{Progress, Reach};
use crate::positions::{self, Position};
use crate::state::{Followed, SliceState, Views, ViewsState};

/// A turn begins so often where nothing calls for it.
const IDLE: Duration = Duration::from_millis(500);
/// Turns begin no more often than this, so that what is written meanwhile is read together.
const BREATH: Duration = Duration::from_millis(5);
/// After a call, turns go on for a while: what is written is called before all replicas have it.
const AFTER_CALL: Duration = Duration::from_millis(20);
const TURNS_AFTER_CALL: u32 = 10;
/// Other nodes read the lease of a slice so often.
const LEASE_LOOKED_AT: Duration = Duration::from_secs(2);
/// Pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// A whole pass begins so often where entries come, and so often where none came for a while, where many are read again, and on a node alone.
const WHOLE_PASS_MICROS: i64 = 1_000_000;
const RARE_PASS_MICROS: i64 = 5_000_000;
/// Positions are stored when they have changed by this.
const STORED_MICROS: i64 = 5_000_000;
/// A position that is older has entries behind it that were not read and have expired, or soon will.
const KEPT_MICROS: i64 = (CHANGES_TTL_SECONDS as i64 - 3_600) * 1_000_000;
/// A view is built when this has passed since all members have known it: no write is older. A node alone has none on their way.
const WRITES_OVER: Duration = Duration::from_millis(2_500);
const WRITES_OVER_ALONE: Duration = Duration::from_millis(300);

/// Starts the tasks of the slices that belong to this shard.
pub fn start(context: &Rc<ShardContext>) {
    let shards = context.node.shard_count();
    for number in Slice::all().filter(|slice| usize::from(slice.0) % shards == context.index) {
        let (weak, clock, node) = (Rc::downgrade(context), context.clock.clone(), context.node.clone());
        let slice = ViewsState::of(context).slice(context, number);
        tokio::task::spawn_local(async move {
            let mut turns = Turns::default();
            let mut turns_left = 0_u32;
            loop {
                let pause = if turns_left > 0 { AFTER_CALL } else { IDLE };
                let is_called = tokio::select! {
                    () = node.layers.get::<Wakes>().woken(number) => true,
                    () = clock.sleep(pause) => false,
                };
                if is_called {
                    turns_left = TURNS_AFTER_CALL;
                    clock.sleep(BREATH).await;
                } else {
                    turns_left = turns_left.saturating_sub(1);
                }
                let Some(context) = weak.upgrade() else { return };
                if *context.node.stopping.borrow() {
                    return;
                }
                let call = match (is_called, turns_left) {
                    (true, _) => Call::Now,
                    (false, 0) => Call::None,
                    (false, _) => Call::Lately,
                };
                if let Err(error) = turns.turn(&context, &slice, call).await {
                    tracing::debug!(slice = number.0, %error, "a turn of the views has failed");
                    clock.sleep(AFTER_ERROR).await;
                }
            }
        });
    }
}

/// Whether something was written, or somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    /// Not now, but a moment ago.
    Lately,
    Now,
}

/// What a task remembers between its turns while it has the lease.
#[derive(Debug, Default)]
struct Turns {
    /// By the ids of the followed tables.
    progress: BTreeMap<Uuid, Progress>,
    stored_micros: BTreeMap<Uuid, i64>,
    /// By the ids of the builds that are not done.
    builds: BTreeMap<Uuid, Building>,
    /// When the lease is looked at again, in monotonic time, and who has it.
    looked_at: Option<Duration>,
    holder: Option<HostId>,
}

/// A view that is not built.
#[derive(Debug)]
struct Building {
    build: Build,
    /// Since when all members know the view, in monotonic time.
    known_since: Option<Duration>,
}

impl Turns {
    async fn turn(&mut self, context: &Rc<ShardContext>, slice: &Rc<SliceState>, call: Call) -> Result<()> {
        let state = ViewsState::of(context);
        let views = state.views(context);
        if views.is_empty() || context.node.status.state() > ServingState::Serving {
            self.forget(slice);
            return Ok(());
        }
        self.keep_lease(context, slice).await?;
        if !slice.lease.is_held(context) {
            self.forget(slice);
            if call == Call::Now {
                self.tell_holder(context, slice.lease.slice);
            }
            return Ok(());
        }
        self.retain(slice, &views);
        let is_awaited = slice.is_awaited.replace(false);
        let arrived = Arrived::take(context, slice.lease.slice);
        let mut outcome = self.read_logs(context, slice, &views, call, is_awaited, arrived).await;
        if outcome.is_err() {
            arrived.put_back(context, slice.lease.slice);
        }
        slice.lease.check(context)?;
        let mut is_building = false;
        for (id, view) in &views.views {
            if slice.built.borrow().contains(id) {
                continue;
            }
            is_building = true;
            outcome = outcome.and(self.build(context, slice, *id, view).await);
            slice.lease.check(context)?;
        }
        if is_building {
            Wakes::of(context).wake_slice(slice.lease.slice);
        }
        outcome
    }

    /// Passes over the logs of all followed tables. What fails for one does not hold up the others.
    async fn read_logs(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        views: &Views,
        call: Call,
        is_awaited: bool,
        arrived: Arrived,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for followed in in_order(views) {
            let read = self.read_log(context, slice, followed, call, is_awaited, arrived).await;
            outcome = outcome.and(read);
            slice.lease.check(context)?;
        }
        outcome
    }

    /// A step of building a view.
    async fn build(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        id: Uuid,
        view: &LiveView,
    ) -> Result<()> {
        if self.is_ready(context, slice, view).await?
            && let Some(building) = self.builds.get_mut(&id)
            && building.build.step(context, slice, view).await?
        {
            self.builds.remove(&id);
            slice.built.borrow_mut().insert(id);
            slice.progress.notify_waiters();
        }
        Ok(())
    }

    /// Prolongs the lease, or takes it if this node should have it and nobody has.
    async fn keep_lease(&mut self, context: &Rc<ShardContext>, slice: &SliceState) -> Result<()> {
        if slice.lease.is_long(context) {
            return Ok(());
        }
        let now = context.clock.monotonic();
        if !slice.lease.is_held(context)
            && self.looked_at.is_some_and(|looked_at| now < looked_at + LEASE_LOOKED_AT)
        {
            return Ok(());
        }
        self.looked_at = Some(now);
        let wanted = preferred(context, slice.lease.slice) == context.node.host_id;
        let holder = slice.lease.keep(context, &ViewsState::of(context).leases, wanted).await?;
        self.holder = holder.map(|holder| holder.host_id);
        Ok(())
    }

    /// Tells the holder of the slice that something was written.
    fn tell_holder(&self, context: &Rc<ShardContext>, slice: Slice) {
        let member = self.holder.and_then(|holder| context.cluster_view().topology.member(&holder).cloned());
        let Some(member) = member.filter(|member| member.host_id != context.node.host_id) else { return };
        let context = context.clone();
        tokio::task::spawn_local(async move {
            let request = ViewsRequest::Written { slices: 1 << slice.0 };
            let shard = u16::from(slice.0) % member.shard_count.max(1);
            // Without it the holder finds what was written when it looks the next time.
            let _ = context.ask(&member, shard, &request, IDLE).await;
        });
    }

    fn forget(&mut self, slice: &SliceState) {
        if !(self.progress.is_empty() && self.builds.is_empty()) {
            let (looked_at, holder) = (self.looked_at, self.holder);
            *self = Self { looked_at, holder, ..Self::default() };
            slice.forget();
        }
    }

    /// Forgets views and tables that are gone.
    fn retain(&mut self, slice: &SliceState, views: &Views) {
        self.progress.retain(|id, _| views.followed.contains_key(id));
        self.stored_micros.retain(|id, _| views.followed.contains_key(id));
        self.builds.retain(|id, _| views.views.contains_key(id));
        slice.fresh.borrow_mut().retain(|id, _| views.followed.contains_key(id));
        slice.built.borrow_mut().retain(|id| views.views.contains_key(id));
        slice.scanned.borrow_mut().retain(|id, _| views.views.contains_key(id));
        slice.failed.borrow_mut().retain(|id, _| views.views.contains_key(id));
    }

    /// A pass over the log of a table.
    async fn read_log(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        followed: &Followed,
        call: Call,
        is_awaited: bool,
        arrived: Arrived,
    ) -> Result<()> {
        let state = ViewsState::of(context);
        let id = followed.log.id;
        if !self.progress.contains_key(&followed.table.id) {
            let begun = self.begin(context, slice, followed).await?;
            self.progress.insert(followed.table.id, begun);
        }
        let Some(progress) = self.progress.get_mut(&followed.table.id) else {
            unreachable!("the progress of a followed table is known from its first pass on")
        };
        let begun_micros = context.clock.now_micros();
        let is_quiet = begun_micros.saturating_sub(progress.last_new_micros) > super::pass::LATE_MICROS;
        let is_rare = is_quiet || arrived.is_all || progress.has_seen_many();
        let period_micros = if is_rare { RARE_PASS_MICROS } else { WHOLE_PASS_MICROS };
        let is_whole = is_awaited || begun_micros.saturating_sub(progress.last_whole_micros) >= period_micros;
        if !is_whole && call == Call::None && arrived.oldest_micros.is_none() {
            return Ok(());
        }
        let reach = match (is_awaited, is_whole) {
            (true, _) => Reach::Awaited,
            (false, true) => Reach::Whole,
            (false, false) => Reach::New,
        };
        let fresh_before = progress.fresh_micros;
        progress.pass(context, slice, followed, reach, arrived).await?;
        if progress.fresh_micros != fresh_before {
            slice.fresh.borrow_mut().insert(followed.table.id, progress.fresh_micros);
            slice.progress.notify_waiters();
        }
        let stored = self.stored_micros.get(&followed.table.id).copied().unwrap_or(i64::MIN);
        if progress.checkpoint_micros.saturating_sub(stored) >= STORED_MICROS {
            let position = Position { micros: Some(progress.checkpoint_micros), ..Position::default() };
            positions::write(context, &state.positions, id, &slice.lease, &position).await?;
            self.stored_micros.insert(followed.table.id, progress.checkpoint_micros);
        }
        Ok(())
    }

    /// Where the last holder has ended with the log of a table.
    async fn begin(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        followed: &Followed,
    ) -> Result<Progress> {
        let statements = &ViewsState::of(context).positions;
        let position = positions::read(context, statements, followed.log.id, &slice.lease).await?;
        // Nobody has read it yet: everything that it has is read.
        let micros = position.and_then(|position| position.micros).unwrap_or(0);
        if micros > 0 && micros < context.clock.now_micros().saturating_sub(KEPT_MICROS) {
            self.build_again(context, slice, followed).await?;
        }
        Ok(Progress::from(micros))
    }

    /// Entries that were not read have expired: the views are built once more, over what they have.
    async fn build_again(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        followed: &Followed,
    ) -> Result<()> {
        let positions = &ViewsState::of(context).positions;
        for view in followed.views.iter().chain(&followed.joined_in) {
            tracing::warn!(
                view = view.table().full_name(),
                slice = slice.lease.slice.0,
                "nobody has kept a view for longer than the changes of its tables are known; it is built again"
            );
            let position = Position { build: view.build(), ..Position::default() };
            positions::write(context, positions, view.table().id, &slice.lease, &position).await?;
            self.builds.remove(&view.build_id());
            slice.built.borrow_mut().remove(&view.build_id());
        }
        Ok(())
    }

    /// Whether a view can be scanned. One that is built already is noted as such.
    async fn is_ready(
        &mut self,
        context: &Rc<ShardContext>,
        slice: &SliceState,
        view: &LiveView,
    ) -> Result<bool> {
        let state = ViewsState::of(context);
        let id = view.build_id();
        let building = match self.builds.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let position =
                    positions::read(context, &state.positions, view.table().id, &slice.lease).await?;
                let position = position.filter(|position| position.build == view.build());
                if position.as_ref().is_some_and(|position| position.is_done) {
                    slice.built.borrow_mut().insert(id);
                    slice.progress.notify_waiters();
                    return Ok(false);
                }
                let build = Build::from(&position.unwrap_or_default());
                new.insert(Building { build, known_since: None })
            }
        };
        let now = context.clock.monotonic();
        if !all_know_the_catalog(context) && building.known_since.is_none() {
            return Ok(false);
        }
        let known_since = *building.known_since.get_or_insert(now);
        let pause = if context.cluster_view().is_alone() { WRITES_OVER_ALONE } else { WRITES_OVER };
        Ok(now >= known_since + pause)
    }
}

/// The followed tables: those in which rows are looked up first, so that what they touch is read in the same turn.
fn in_order(views: &Views) -> Vec<&Rc<Followed>> {
    let mut followed: Vec<_> = views.followed.values().collect();
    followed.sort_by_key(|followed| followed.joined_in.is_empty());
    followed
}

/// The member that should have a slice: the live ones have about as many each, and those of others stay where they are when one goes
/// (rendezvous hashing).
fn preferred(context: &ShardContext, slice: Slice) -> HostId {
    let view = context.cluster_view();
    // Who leaves, or is drained, keeps nothing any more.
    let serves = |host_id: &HostId| {
        *host_id == context.node.host_id
            || context.node.status.of(host_id).is_some_and(|status| status.state <= ServingState::Serving)
    };
    let owners = view.topology.owners();
    let owners = owners.filter(|member| view.is_alive(&member.host_id) && serves(&member.host_id));
    let weight = |host_id: &HostId| {
        let mut bytes = host_id.as_bytes().to_vec();
        bytes.push(slice.0);
        cql_lite::types::token::token(&bytes)
    };
    let heaviest = owners.map(|member| member.host_id).max_by_key(|host_id| (weight(host_id), *host_id));
    heaviest.unwrap_or(context.node.host_id)
}

/// Whether all members that are alive have the catalog of this node.
fn all_know_the_catalog(context: &ShardContext) -> bool {
    let version = context.catalog_view().catalog.version;
    let view = context.cluster_view();
    let mut others = view
        .topology
        .owners()
        .filter(|member| member.host_id != context.node.host_id && view.is_alive(&member.host_id));
    others.all(|member| {
        context.node.status.of(&member.host_id).is_some_and(|status| status.schema_version == version)
    })
}
