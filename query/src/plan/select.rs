//! The plan of a SELECT: everything that can be decided before values are bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::freshness::{Freshness, plan_freshness};
use super::index_search::{IndexPlan, IndexUse, use_indexes};
use super::names::{NameScope, column_of, display_name};
use super::nearest::{NearestPlan, resolve_nearest};
use super::restrictions::{
    PartitionRestriction, REQUIRES_ALLOW_FILTERING, Restrictions, check_clustering, check_tuple_slices,
    resolve_relations,
};
use super::selection::{Fetched, MaskedColumns, ResultColumn, Selection, SelectionResolver, Selector};
use super::term::{Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::plan::direct_rows::DirectRows;
use crate::plan::row_layout::RowLayout;
use crate::schema::catalog::{ColumnKind, Table};
use crate::schema::virtual_tables;

/// A planned SELECT.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties of a statement, not states")]
pub struct SelectPlan {
    pub table: Arc<Table>,
    pub restrictions: Restrictions,
    /// The columns that are read of each row: selected, filtered, grouped or ordered by.
    pub fetched: Fetched,
    /// How those columns are read from a row.
    pub layout: RowLayout,
    pub selection: Selection,
    /// The slots to copy if the selection has only columns (and nothing is grouped or ordered).
    pub plain_slots: Option<Vec<usize>>,
    /// Writes regular rows directly if they are only copied from `plain_slots`.
    pub direct_rows: Option<DirectRows>,
    pub json: bool,
    pub distinct: bool,
    /// The rows of each partition are returned in reverse order of the table.
    pub reversed: bool,
    /// Order of the whole result if it spans partitions: slots, with `true` for descending.
    pub result_order: Vec<(usize, bool)>,
    pub group_by: Vec<Selector>,
    pub limit: Option<Term>,
    pub per_partition_limit: Option<Term>,
    /// How long the coordinator waits for the rows; `None`: as the settings say.
    pub timeout: Option<Term>,
    /// Up to when a view must be true before it is read; `None`: it is read as it is.
    pub freshness: Option<Freshness>,
    /// The statement says ALLOW FILTERING.
    pub allows_filtering: bool,
    /// The statement says BYPASS CACHE: blocks that it reads from the disk are not kept in memory for other reads.
    pub bypasses_cache: bool,
    /// Neither the key nor indexes decide all restrictions.
    pub needs_filtering: bool,
    /// Static content is part of the result.
    pub reads_static: bool,
    /// The rows are found by indexes. `None`: they are all rows that the key restrictions address.
    pub index: Option<IndexPlan>,
    /// The rows are the nearest to a vector, in that order.
    pub nearest: Option<NearestPlan>,
    /// A partition that has static content but no rows returns a row.
    pub returns_static_only: bool,
    /// The names of masked columns in WHERE and ANN OF, in the order of the table's columns.
    pub restricted_masked_columns: Vec<String>,
    /// All columns that the result depends on: those that are fetched, and those that WHERE and ORDER BY name. Indexes in [`Table::columns`].
    pub read_columns: BTreeSet<usize>,
}

impl SelectPlan {
    /// Whether rows are collected into groups (aggregates or GROUP BY).
    pub fn is_grouped(&self) -> bool {
        !self.selection.aggregates.is_empty() || !self.group_by.is_empty()
    }

    /// Whether the clustering restrictions name rows, and not ranges.
    pub fn names_rows(&self) -> bool {
        self.restrictions.names_rows(&self.table)
    }

    /// The columns that the client sees.
    pub fn result_columns(&self) -> Vec<ResultColumn> {
        if self.json {
            vec![ResultColumn { name: "[json]".to_owned(), column_type: CqlType::Text }]
        } else {
            self.selection.columns.clone()
        }
    }
}

/// Plans a SELECT on a table.
pub fn plan_select(
    statement: &ast::Select,
    table: &Arc<Table>,
    scope: &NameScope<'_>,
    markers: &mut Markers,
    masked: MaskedColumns,
) -> Result<SelectPlan> {
    let mut fetched = Fetched::default();
    let selection =
        SelectionResolver::new(*scope, table, markers, &mut fetched, masked).resolve(&statement.clause)?;
    let mut restrictions = resolve_relations(&statement.relations, scope, table, markers)?;
    check_only_static(statement, table, &fetched, &restrictions)?;
    let nearest_order = resolve_nearest(statement, table, scope, markers)?;
    if let Some(order) = &nearest_order {
        order.check_column(table, &restrictions)?;
    }
    let mut index_use = use_indexes(table, &mut restrictions)?;
    index_use.is_read_by_index |= nearest_order.is_some();
    if index_use.is_read_by_index && restrictions.has_partition_in() {
        return Err(RequestError::invalid(
            "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
        ));
    }
    if statement.distinct {
        check_distinct(table, &selection, &fetched, &restrictions)?;
    }
    let group_by = resolve_group_by(statement, table, scope, markers, &mut fetched, &restrictions)?;
    let is_grouped = !selection.aggregates.is_empty() || !group_by.is_empty();
    let nearest = match nearest_order {
        Some(order) => Some(order.plan(statement, &mut fetched, &mut index_use, is_grouped)?),
        None => None,
    };
    let (reversed, result_order) = if nearest.is_some() {
        (false, Vec::new())
    } else {
        resolve_order(statement, table, &mut fetched, &restrictions, index_use.is_read_by_index)?
    };
    let (reversed, result_order) = if reversed && table.options.cap.is_some() {
        check_reversed_capped(statement, is_grouped)?;
        (false, reversed_order(table, &mut fetched))
    } else {
        (reversed, result_order)
    };
    let is_virtual = table.kind == crate::schema::catalog::TableKind::Virtual
        && !virtual_tables::asks_for_filtering(table);
    check_filtering(statement, table, &restrictions, &index_use, is_virtual)?;
    let needs_filtering = !index_use.decides_all;
    check_tuple_slices(&restrictions, table)?;
    for filter in &restrictions.filters {
        for &column in filter.subject.columns() {
            fetched.slot(column);
        }
    }
    if statement.per_partition_limit.is_some() {
        if statement.distinct {
            return Err(RequestError::invalid(
                "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
            ));
        }
        if !selection.aggregates.is_empty() && group_by.is_empty() {
            return Err(RequestError::invalid("PER PARTITION LIMIT is not allowed with aggregate queries."));
        }
    }
    let mut limit = |term: &Option<ast::Expression>, name: &str| {
        term.as_ref()
            .map(|term| resolve(term, &Receiver::new(name, CqlType::Int), scope, markers))
            .transpose()
    };
    let per_partition_limit = limit(&statement.per_partition_limit, "[per_partition_limit]")?;
    let limit_term = limit(&statement.limit, "[limit]")?;
    let timeout = statement
        .timeout
        .as_ref()
        .map(|term| resolve(term, &Receiver::timeout(), scope, markers))
        .transpose()?;
    let freshness = statement
        .freshness
        .as_ref()
        .map(|written| plan_freshness(written, table, scope, markers))
        .transpose()?;
    let is_plain = !is_grouped && !statement.json && result_order.is_empty() && nearest.is_none();
    let plain_slots = if is_plain { selection.plain_slots() } else { None };
    let direct_rows = plain_slots
        .as_ref()
        .filter(|_| restrictions.filters.is_empty() && !statement.distinct)
        .and_then(|slots| DirectRows::new(table, &fetched, slots));
    let reads_static = table.has_static_columns();
    // Where the index only narrows what is filtered, the order and the partitions come first.
    let in_table_order = statement.order_by.is_empty() && !restrictions.has_partition_in();
    let index = index_use.plan.filter(|_| in_table_order);
    let filters_clustering = restrictions
        .filters
        .iter()
        .any(|filter| filter.subject.columns().iter().any(|&column| table.columns[column].is_clustering()));
    let returns_static_only =
        reads_static && restrictions.clustering.is_empty() && !filters_clustering && nearest.is_none();
    let read_columns = read_columns(statement, table, &fetched)?;
    Ok(SelectPlan {
        table: table.clone(),
        restrictions,
        layout: RowLayout::new(table, &fetched),
        fetched,
        selection,
        plain_slots,
        direct_rows,
        json: statement.json,
        distinct: statement.distinct,
        reversed,
        result_order,
        group_by,
        limit: limit_term,
        allows_filtering: statement.allow_filtering,
        bypasses_cache: statement.bypass_cache,
        needs_filtering,
        per_partition_limit,
        timeout,
        freshness,
        reads_static,
        returns_static_only,
        index,
        nearest,
        restricted_masked_columns: restricted_masked_columns(statement, table),
        read_columns,
    })
}

fn read_columns(statement: &ast::Select, table: &Table, fetched: &Fetched) -> Result<BTreeSet<usize>> {
    let restricted = statement.relations.iter().flat_map(ast::Relation::columns);
    let named = restricted.chain(statement.order_by.iter().map(|item| &item.column));
    let mut columns = named.map(|name| column_of(table, name)).collect::<Result<BTreeSet<_>>>()?;
    columns.extend(&fetched.columns);
    Ok(columns)
}

fn restricted_masked_columns(statement: &ast::Select, table: &Table) -> Vec<String> {
    if table.masks.is_empty() {
        return Vec::new();
    }
    // ANN OF sorts by the values themselves, so it restricts them as WHERE does.
    let nearest = statement.order_by.iter().filter(|item| item.nearest_to.is_some()).map(|item| &item.column);
    let restricted: Vec<&ast::Identifier> =
        statement.relations.iter().flat_map(ast::Relation::columns).chain(nearest).collect();
    let is_named = |name: &str| restricted.iter().any(|column| column.as_str() == name);
    let masked = table.columns.iter().filter(|column| table.masks.contains_key(&column.id));
    masked.filter(|column| is_named(&column.name)).map(|column| column.name.clone()).collect()
}

/// A statement that reads nothing of rows, only static columns, cannot say which rows.
fn check_only_static(
    statement: &ast::Select,
    table: &Table,
    selected: &Fetched,
    restrictions: &Restrictions,
) -> Result<()> {
    let kinds = || selected.columns.iter().map(|&column| table.columns[column].kind);
    let selects_only_static = statement.clause != ast::SelectClause::All
        && kinds().any(|kind| kind == ColumnKind::Static)
        && kinds().all(|kind| matches!(kind, ColumnKind::PartitionKey { .. } | ColumnKind::Static));
    let is_clustering = |&column: &usize| matches!(table.columns[column].kind, ColumnKind::Clustering { .. });
    let filters_clustering =
        || restrictions.filters.iter().flat_map(|filter| filter.subject.columns()).any(&is_clustering);
    if selects_only_static && (!restrictions.clustering.is_empty() || filters_clustering()) {
        return Err(RequestError::invalid(
            "Cannot restrict clustering columns when selecting only static columns",
        ));
    }
    Ok(())
}

fn check_distinct(
    table: &Table,
    selection: &Selection,
    fetched: &Fetched,
    restrictions: &Restrictions,
) -> Result<()> {
    for &index in &fetched.columns {
        let column = &table.columns[index];
        if !column.is_partition_key() && !column.is_static() {
            return Err(RequestError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                column.name
            )));
        }
    }
    let is_range = matches!(restrictions.partition, PartitionRestriction::Range(_));
    if is_range && selection.aggregates.is_empty() {
        let missing = (0..table.partition_key_count).find(|&index| fetched.slot_of(index).is_none());
        if let Some(missing) = missing {
            return Err(RequestError::invalid(format!(
                "SELECT DISTINCT queries must request all the partition key columns (missing {})",
                table.columns[missing].name
            )));
        }
    }
    let restricts_rows =
        !restrictions.clustering.is_empty()
            || restrictions.filters.iter().any(|filter| {
                filter.subject.columns().iter().any(|&index| {
                    !table.columns[index].is_partition_key() && !table.columns[index].is_static()
                })
            });
    if restricts_rows {
        return Err(RequestError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        ));
    }
    Ok(())
}

fn check_filtering(
    statement: &ast::Select,
    table: &Table,
    restrictions: &Restrictions,
    index_use: &IndexUse,
    is_virtual: bool,
) -> Result<()> {
    if index_use.decides_all || is_virtual {
        return Ok(());
    }
    if statement.allow_filtering {
        return Ok(());
    }
    if index_use.is_read_by_index {
        return Err(RequestError::invalid(REQUIRES_ALLOW_FILTERING));
    }
    let is_range = matches!(restrictions.partition, PartitionRestriction::Range(_));
    let partition_filter = restrictions
        .filters
        .iter()
        .flat_map(|filter| filter.subject.columns())
        .any(|&index| table.columns[index].is_partition_key());
    if is_range && partition_filter {
        return Err(RequestError::invalid(REQUIRES_ALLOW_FILTERING));
    }
    check_clustering(restrictions, table)?;
    Err(RequestError::invalid(REQUIRES_ALLOW_FILTERING))
}

fn resolve_group_by(
    statement: &ast::Select,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
    fetched: &mut Fetched,
    restrictions: &Restrictions,
) -> Result<Vec<Selector>> {
    let mut selectors = Vec::with_capacity(statement.group_by.len());
    let mut next = 0;
    for (position, item) in statement.group_by.iter().enumerate() {
        let column_name = match item {
            ast::Expression::Column(name) => name,
            ast::Expression::Function { arguments, .. } => {
                if position + 1 != statement.group_by.len() {
                    return Err(RequestError::invalid(
                        "Functions are only supported on the last element of the GROUP BY clause",
                    ));
                }
                arguments
                    .iter()
                    .find_map(|argument| match argument {
                        ast::Expression::Column(name) => Some(name),
                        _ => None,
                    })
                    .ok_or_else(|| {
                        RequestError::invalid(
                            "GROUP BY functions must have one clustering column name as parameter",
                        )
                    })?
            }
            other => {
                return Err(RequestError::invalid(format!(
                    "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                    display_name(other)
                )));
            }
        };
        let index = column_of(table, column_name)?;
        if !table.columns[index].is_primary_key() {
            return Err(RequestError::invalid(format!(
                "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                column_name.as_str()
            )));
        }
        while next < index && restrictions.equal_columns.contains(&next) {
            next += 1;
        }
        if next != index {
            return Err(RequestError::invalid(
                "Group by currently only support groups of columns following their declared order in the PRIMARY KEY",
            ));
        }
        next += 1;
        let resolver = &mut SelectionResolver::new(*scope, table, markers, fetched, MaskedColumns::Clear);
        let selector = resolver.selector(item)?.0;
        if let Selector::Function { function, .. } = &selector
            && function.is_user_defined()
        {
            return Err(RequestError::invalid(format!(
                "Only monotonic functions are supported in the GROUP BY clause. Got: {} ",
                function.signature()
            )));
        }
        selectors.push(selector);
    }
    if !selectors.is_empty()
        && (next..table.partition_key_count).any(|index| !restrictions.equal_columns.contains(&index))
    {
        return Err(RequestError::invalid("Group by is not supported on only a part of the partition key"));
    }
    if !selectors.is_empty() && statement.distinct && next > table.partition_key_count {
        return Err(RequestError::invalid(
            "Grouping on clustering columns is not allowed for SELECT DISTINCT queries",
        ));
    }
    Ok(selectors)
}

/// Rows of a table with a cap are read from the first one on, and then put in order.
fn check_reversed_capped(statement: &ast::Select, is_grouped: bool) -> Result<()> {
    if is_grouped || statement.per_partition_limit.is_some() {
        return Err(RequestError::invalid(
            "Aggregates, GROUP BY and PER PARTITION LIMIT are not supported in the reverse order of a table with a cap yet",
        ));
    }
    Ok(())
}

/// The order of a result whose partitions are in the reverse order of their table.
fn reversed_order(table: &Table, fetched: &mut Fetched) -> Vec<(usize, bool)> {
    let first = table.partition_key_count;
    let columns = table.clustering_key().iter().enumerate();
    columns.map(|(index, column)| (fetched.slot(first + index), !column.is_descending())).collect()
}

/// Of several items with the same column the last one counts, in the place of the first one.
fn last_of_each_column(items: &[ast::OrderBy]) -> Vec<&ast::OrderBy> {
    let mut columns: Vec<&ast::OrderBy> = Vec::with_capacity(items.len());
    for item in items {
        match columns.iter_mut().find(|earlier| earlier.column == item.column) {
            Some(earlier) => *earlier = item,
            None => columns.push(item),
        }
    }
    columns
}

/// Whether partitions are read in reverse, and the order of the whole result if it spans partitions.
fn resolve_order(
    statement: &ast::Select,
    table: &Table,
    fetched: &mut Fetched,
    restrictions: &Restrictions,
    is_read_by_index: bool,
) -> Result<(bool, Vec<(usize, bool)>)> {
    if statement.order_by.is_empty() {
        return Ok((false, Vec::new()));
    }
    if is_read_by_index {
        return Err(RequestError::invalid(
            "ORDER BY with 2ndary indexes is not supported, except for ANN queries.",
        ));
    }
    if !matches!(restrictions.partition, PartitionRestriction::Keys(_)) {
        return Err(RequestError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        ));
    }
    let mut reversed = None;
    let mut next = table.partition_key_count;
    let mut result_order = Vec::new();
    for item in last_of_each_column(&statement.order_by) {
        let index = column_of(table, &item.column)?;
        let column = &table.columns[index];
        if !column.is_clustering() {
            return Err(RequestError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                column.name
            )));
        }
        while next < index && restrictions.equal_columns.contains(&next) {
            next += 1;
        }
        if next != index {
            return Err(RequestError::invalid(
                "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
            ));
        }
        next += 1;
        let descending = item.direction == ast::Direction::Descending;
        let is_reversed = descending != column.is_descending();
        if *reversed.get_or_insert(is_reversed) != is_reversed {
            return Err(RequestError::invalid("Unsupported order by relation"));
        }
        if restrictions.has_partition_in() {
            result_order.push((fetched.slot(index), descending));
        }
    }
    Ok((reversed.unwrap_or(false), result_order))
}
