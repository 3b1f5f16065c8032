//! A view as a shard keeps it true: its computation, and its statements ready to be used.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_views::computation::{Computation, Values};
use helenus_views::definition::Definition;
use helenus_views::statements::Bounds;
use uuid::Uuid;

use crate::internal_statement::{InternalStatement, NextPage};
use crate::unit::stored_unit;

/// The level at which the rows of views are read and written: what is recomputed sees what was acknowledged at a quorum.
pub const LEVEL: Consistency = Consistency::Quorum;

/// A view, on one shard, with the catalog of one time.
#[derive(Debug)]
pub struct LiveView {
    pub computation: Computation,
    read_unit: InternalStatement,
    read_origins: InternalStatement,
    pub put_origin: InternalStatement,
    pub delete_origin: InternalStatement,
    pub put_row: InternalStatement,
    pub delete_row: InternalStatement,
    read_row: InternalStatement,
    read_last: Option<InternalStatement>,
    pub scan_view: InternalStatement,
    /// The times to live of the values of a unit, if it may have any.
    pub read_times: Option<InternalStatement>,
    pub scan_base: InternalStatement,
    pub scan_origins: InternalStatement,
    lookup: Option<Lookup>,
    /// The units of a partition within bounds.
    read_units: RefCell<BTreeMap<Bounds, Rc<InternalStatement>>>,
}

#[derive(Debug)]
struct Lookup {
    read_joined: InternalStatement,
    put: InternalStatement,
    read_lookups: InternalStatement,
    read_lookups_of_partition: InternalStatement,
}

impl LiveView {
    pub fn new(catalog: &Catalog, view: &Arc<Table>) -> Result<Self> {
        let computation = Computation::new(Definition::new(catalog, view)?, catalog)?;
        let statements = &computation.statements;
        Ok(Self {
            read_unit: InternalStatement::new(&*statements.read_unit),
            read_origins: InternalStatement::new(&*statements.read_origins),
            put_origin: InternalStatement::new(&*statements.put_origin),
            delete_origin: InternalStatement::new(&*statements.delete_origin),
            put_row: InternalStatement::new(&*statements.put_row),
            delete_row: InternalStatement::new(&*statements.delete_row),
            read_row: InternalStatement::new(&*statements.read_row),
            read_last: statements.read_last.as_deref().map(InternalStatement::new),
            scan_view: InternalStatement::new(&*statements.scan_view),
            read_times: statements.read_times.as_deref().map(InternalStatement::new),
            scan_base: InternalStatement::new(&*statements.scan_base),
            scan_origins: InternalStatement::new(&*statements.scan_origins),
            lookup: statements.lookup.as_ref().map(|lookup| Lookup {
                read_joined: InternalStatement::new(&*lookup.read_joined),
                put: InternalStatement::new(&*lookup.put_lookup),
                read_lookups: InternalStatement::new(&*lookup.read_lookups),
                read_lookups_of_partition: InternalStatement::new(&*lookup.read_lookups_of_partition),
            }),
            read_units: RefCell::default(),
            computation,
        })
    }

    /// Whether another one is the same: the tables and the statements are.
    pub fn is_like(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.computation, &other.computation);
        let joined = |computation: &Computation| {
            computation.definition.joined.as_ref().map(|joined| joined.table.clone())
        };
        mine.statements == theirs.statements
            && mine.definition.view == theirs.definition.view
            && mine.definition.base == theirs.definition.base
            && joined(mine) == joined(theirs)
    }

    pub fn table(&self) -> &Arc<Table> {
        &self.computation.definition.view
    }

    /// The id by which it is noted how far the view is built. It is another one when the view is to be built again.
    pub fn build_id(&self) -> Uuid {
        self.build().unwrap_or(self.table().id)
    }

    /// The present build, if the view was built again.
    pub fn build(&self) -> Option<Uuid> {
        self.table().view.as_ref().and_then(|view| view.build)
    }

    pub fn base(&self) -> &Arc<Table> {
        &self.computation.definition.base
    }

    /// The values of a unit; `None`: it is not there.
    pub async fn unit(&self, context: &Rc<ShardContext>, unit: &Values) -> Result<Option<Values>> {
        first_row(context, &self.read_unit, unit).await
    }

    /// The row of the view with this key, as it is.
    pub async fn row(&self, context: &Rc<ShardContext>, key: &Values) -> Result<Option<Values>> {
        first_row(context, &self.read_row, key).await
    }

    /// Whether the cap of the view may have evicted the row with this key: rows are there, and all of them before it.
    pub async fn may_be_evicted(&self, context: &Rc<ShardContext>, key: &Values) -> Result<bool> {
        let Some(read_last) = &self.read_last else { return Ok(false) };
        let partition = key[..self.table().partition_key_count].to_vec();
        let Some(last) = first_row(context, read_last, &partition).await? else { return Ok(false) };
        let (_, last) = stored_unit(self.table(), &last)?;
        let (_, position) = stored_unit(self.table(), key)?;
        Ok(position > last)
    }

    /// The joined row of a unit. With a timestamp, it is read once the table of lookups says that the unit depends on it.
    pub async fn joined(
        &self,
        context: &Rc<ShardContext>,
        unit: &Values,
        values: &Values,
        timestamp: Option<i64>,
    ) -> Result<Option<Values>> {
        let (Some(lookup), Some(key)) = (&self.lookup, self.computation.joined_key(values)) else {
            return Ok(None);
        };
        if timestamp.is_some() {
            let whole: Values = key.iter().chain(unit).cloned().collect();
            lookup.put.write(context, &whole, LEVEL, timestamp).await?;
        }
        first_row(context, &lookup.read_joined, &key).await
    }

    /// A page of the units that have looked up a row of the joined table, or rows of a partition of it.
    pub async fn lookups(
        &self,
        context: &Rc<ShardContext>,
        partition_key: &Values,
        clustering: Option<&Values>,
        from: Option<NextPage>,
    ) -> Result<(Vec<Values>, Option<NextPage>)> {
        let Some(lookup) = &self.lookup else { return Ok((Vec::new(), None)) };
        let Some(clustering) = clustering else {
            return page(context, &lookup.read_lookups_of_partition, partition_key, from).await;
        };
        let key: Values = partition_key.iter().chain(clustering).cloned().collect();
        page(context, &lookup.read_lookups, &key, from).await
    }

    /// The rows of the view that may come from a unit, as the table of origins has them.
    pub async fn origins(&self, context: &Rc<ShardContext>, unit: &Values) -> Result<Vec<Values>> {
        let mut origins = Vec::new();
        let is_fixed = self.computation.has_fixed_key();
        let each = |row: &[Option<&[u8]>]| {
            origins.push(if is_fixed { Vec::new() } else { owned(row) });
            Ok(ControlFlow::Continue(()))
        };
        self.read_origins.rows(context, unit, LEVEL, each).await?;
        Ok(origins)
    }

    /// A page of the units of a partition of the base table that may have rows in the view, each once or more. `bounds`: the first clustering column
    /// is not less, not greater.
    pub async fn units(
        &self,
        context: &Rc<ShardContext>,
        partition_key: &Values,
        bounds: &(Option<Vec<u8>>, Option<Vec<u8>>),
        next: Option<NextPage>,
    ) -> Result<(Vec<Values>, Option<NextPage>)> {
        let (from, to) = bounds;
        let shape = Bounds { has_from: from.is_some(), has_to: to.is_some() };
        let statement = {
            let mut known = self.read_units.borrow_mut();
            let text = || self.computation.definition.units_of_partition(shape);
            known.entry(shape).or_insert_with(|| Rc::new(InternalStatement::new(text()))).clone()
        };
        let bounds = [from, to].into_iter().flatten().cloned().map(Some);
        let values: Values = partition_key.iter().cloned().chain(bounds).collect();
        page(context, &statement, &values, next).await
    }
}

async fn first_row(
    context: &Rc<ShardContext>,
    statement: &InternalStatement,
    values: &Values,
) -> Result<Option<Values>> {
    let mut found = None;
    statement
        .rows(context, values, LEVEL, |row| {
            found = Some(owned(row));
            Ok(ControlFlow::Break(()))
        })
        .await?;
    Ok(found)
}

/// A page of rows, and where the next one begins, if there is one.
pub async fn page(
    context: &Rc<ShardContext>,
    statement: &InternalStatement,
    values: &Values,
    from: Option<NextPage>,
) -> Result<(Vec<Values>, Option<NextPage>)> {
    let mut rows = Vec::new();
    let each = |row: &[Option<&[u8]>]| {
        rows.push(owned(row));
        Ok(ControlFlow::Continue(()))
    };
    let next = match statement.page(context, values, LEVEL, from, each).await? {
        ControlFlow::Continue(next) => next,
        ControlFlow::Break(()) => None,
    };
    Ok((rows, next))
}

/// Values that outlive the page that they were read in.
pub fn owned(row: &[Option<&[u8]>]) -> Values {
    row.iter().map(|value| value.map(<[u8]>::to_vec)).collect()
}
