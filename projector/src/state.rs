//! What a shard knows of the views that it keeps true, and of its slices.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::shard::context::ShardContext;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_ring::HostId;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::changes::ChangesReader;
use crate::lease::{Lease, LeaseStatements};
use crate::live_view::LiveView;
use crate::positions::PositionStatements;
use crate::timers::TimerStatements;

/// Most units that are recomputed together.
pub const UNITS_TOGETHER_MAX: usize = 256;

/// The state of views on a shard.
#[derive(Debug, Default)]
pub struct ViewsState {
    /// The generation of the catalog of which the rest is, if it was ever read.
    generation: Cell<Option<u64>>,
    views: RefCell<Views>,
    slices: RefCell<BTreeMap<u8, Rc<SliceState>>>,
    /// Which members had slices when they were asked.
    holders: RefCell<BTreeMap<u8, HostId>>,
    /// A CHECK PROJECTION runs on this shard.
    pub is_checking: Cell<bool>,
    pub leases: LeaseStatements,
    pub positions: PositionStatements,
    pub timers: TimerStatements,
}

/// The views of a catalog.
#[derive(Debug, Default, Clone)]
pub struct Views {
    /// By the ids of their builds ([`LiveView::build_id`]).
    pub views: BTreeMap<Uuid, Rc<LiveView>>,
    /// The tables that they are computed of, with their logs, by the ids of the tables.
    pub followed: BTreeMap<Uuid, Rc<Followed>>,
}

/// A table of which views are computed.
#[derive(Debug)]
pub struct Followed {
    pub table: Arc<Table>,
    pub log: Arc<Table>,
    pub reader: ChangesReader,
    /// The views whose base table it is.
    pub views: Vec<Rc<LiveView>>,
    /// The views that look up rows in it.
    pub joined_in: Vec<Rc<LiveView>>,
}

/// A slice that this shard keeps while it has its lease.
#[derive(Debug)]
pub struct SliceState {
    pub lease: Lease,
    /// By the ids of the followed tables: all changes that were acknowledged before this time, in microseconds, are in the views.
    pub fresh: RefCell<BTreeMap<Uuid, i64>>,
    /// The ids of the builds that are done in this slice.
    pub built: RefCell<BTreeSet<Uuid>>,
    /// By the ids of their builds: rows that were scanned of views that are not built yet.
    pub scanned: RefCell<BTreeMap<Uuid, u64>>,
    /// By the ids of their builds: units that were left out since the slice was taken, because an expression failed on their values.
    pub failed: RefCell<BTreeMap<Uuid, u64>>,
    /// How many units are recomputed together.
    pub together: Cell<usize>,
    /// Somebody waits for views to be fresh.
    pub is_awaited: Cell<bool>,
    /// Called when something has become fresh or built.
    pub progress: Notify,
}

impl ViewsState {
    pub fn of(context: &ShardContext) -> &Self {
        context.layers.get()
    }

    /// The views of the newest catalog that this shard knows.
    pub fn views(&self, context: &ShardContext) -> Views {
        self.refresh(context);
        self.views.borrow().clone()
    }

    /// The view with this id of its build, if this shard knows it.
    pub fn view(&self, context: &ShardContext, build: Uuid) -> Option<Rc<LiveView>> {
        self.refresh(context);
        self.views.borrow().views.get(&build).cloned()
    }

    fn refresh(&self, context: &ShardContext) {
        let view = context.catalog_view();
        if self.generation.get() != Some(view.generation) {
            let known = std::mem::take(&mut *self.views.borrow_mut());
            *self.views.borrow_mut() = Views::of(&view.catalog, &known);
            self.generation.set(Some(view.generation));
        }
    }

    /// Whether the views that this shard keeps are those of the newest catalog.
    pub fn is_current(&self, context: &ShardContext) -> bool {
        self.generation.get() == Some(context.catalog_view().generation)
    }

    /// The member that had a slice when it was asked the last time.
    pub fn last_holder(&self, slice: Slice) -> Option<HostId> {
        self.holders.borrow().get(&slice.0).copied()
    }

    pub fn note_holder(&self, slice: Slice, holder: HostId) {
        self.holders.borrow_mut().insert(slice.0, holder);
    }

    /// The slices whose leases this shard has.
    pub fn held(&self, context: &ShardContext) -> Vec<Rc<SliceState>> {
        let slices = self.slices.borrow();
        slices.values().filter(|slice| slice.lease.is_held(context)).cloned().collect()
    }

    /// The state of a slice that belongs to this shard.
    pub fn slice(&self, context: &ShardContext, slice: Slice) -> Rc<SliceState> {
        let mut slices = self.slices.borrow_mut();
        slices
            .entry(slice.0)
            .or_insert_with(|| {
                Rc::new(SliceState {
                    lease: Lease::new(context, slice),
                    fresh: RefCell::default(),
                    built: RefCell::default(),
                    scanned: RefCell::default(),
                    failed: RefCell::default(),
                    together: Cell::new(UNITS_TOGETHER_MAX),
                    is_awaited: Cell::new(false),
                    progress: Notify::new(),
                })
            })
            .clone()
    }
}

impl SliceState {
    /// Everything is learned anew when the slice is taken the next time.
    pub fn forget(&self) {
        self.fresh.borrow_mut().clear();
        self.built.borrow_mut().clear();
        self.scanned.borrow_mut().clear();
        self.failed.borrow_mut().clear();
        self.lease.forget();
        self.progress.notify_waiters();
    }
}

impl Views {
    /// The view with this table.
    pub fn of_table(&self, id: Uuid) -> Option<&Rc<LiveView>> {
        self.views.values().find(|view| view.table().id == id)
    }

    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The views of a catalog. Those that are as they were are kept, with their prepared statements.
    fn of(catalog: &Catalog, known: &Self) -> Self {
        let mut views = BTreeMap::new();
        for keyspace in catalog.keyspaces.values() {
            for table in keyspace.tables.values().filter(|table| table.view.is_some()) {
                match LiveView::new(catalog, table) {
                    Ok(live) => {
                        let kept = known.views.get(&live.build_id()).filter(|kept| kept.is_like(&live));
                        views.insert(live.build_id(), kept.cloned().unwrap_or_else(|| Rc::new(live)));
                    }
                    Err(error) => {
                        tracing::error!(view = table.full_name(), %error, "a view cannot be kept true: its definition does not fit its tables");
                    }
                }
            }
        }
        let mut followed = BTreeMap::new();
        let tables = views.values().flat_map(|view| {
            let joined = view.computation.definition.joined.as_ref().map(|joined| &joined.table);
            std::iter::once(view.base()).chain(joined)
        });
        for table in tables {
            let log = catalog.keyspace(&table.keyspace).and_then(|keyspace| keyspace.view_log(&table.name));
            let Some(log) = log else {
                tracing::error!(table = table.full_name(), "the log of a table with views is missing");
                continue;
            };
            followed.entry(table.id).or_insert_with(|| {
                let of_base = |view: &&Rc<LiveView>| view.base().id == table.id;
                let joins = |view: &&Rc<LiveView>| {
                    view.computation
                        .definition
                        .joined
                        .as_ref()
                        .is_some_and(|joined| joined.table.id == table.id)
                };
                Rc::new(Followed {
                    table: table.clone(),
                    log: log.clone(),
                    reader: ChangesReader::new(table, log),
                    views: views.values().filter(of_base).cloned().collect(),
                    joined_in: views.values().filter(joins).cloned().collect(),
                })
            });
        }
        Self { views, followed }
    }
}
