//! Guardrails of SELECT (the permitted reads and their sizes), and of the consistency levels of all requests.

use std::collections::BTreeSet;

use super::{Guardrails, Values};
use helenus_query::error::Result;
use helenus_query::plan::restrictions::{
    ClusteringRestriction, PartitionRestriction, TupleValues, Values as Allowed,
};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::{Bindings, Bound, Term};
use helenus_query::schema::catalog::Column;
use helenus_query::schema::system_keyspaces;

impl Guardrails {
    /// Whether any guardrail of reads is set.
    pub(super) fn any_of_selects(&self) -> bool {
        self.allow_filtering.is_set()
            || self.group_by.is_set()
            || self.page_size.is_set()
            || self.partition_keys_in_select.is_set()
            || self.in_select_cartesian_product.is_set()
            || self.read_consistency_levels.is_set()
            || self.non_partition_restricted_index_query.is_set()
            || self.intersect_filtering_query.is_set()
    }

    /// Checks a SELECT. `page_rows`: the rows of a page that the client wants, if it names them. `compares_replicas`: the answers of
    /// several replicas are put together.
    pub fn check_select(
        &self,
        plan: &SelectPlan,
        bindings: &Bindings<'_>,
        page_rows: Option<usize>,
        compares_replicas: bool,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let table = &plan.table;
        if system_keyspaces::is_system(&table.keyspace) {
            return Ok(());
        }
        if plan.allows_filtering {
            self.allow_filtering.guard(warnings)?;
        }
        if !plan.group_by.is_empty() {
            self.group_by.guard(warnings)?;
        }
        let uses_index = plan.index.is_some() || plan.nearest.is_some();
        if uses_index && !matches!(plan.restrictions.partition, PartitionRestriction::Keys(_)) {
            self.non_partition_restricted_index_query.guard(warnings)?;
        }
        if compares_replicas && plan.needs_filtering && intersects_mutable_columns(plan) {
            self.intersect_filtering_query.guard(warnings)?;
        }
        if let Some(rows) = page_rows {
            self.page_size.guard(rows as u64, &table.name, warnings)?;
        }
        if self.partition_keys_in_select.is_set() || self.in_select_cartesian_product.is_set() {
            self.check_combinations(plan, bindings, warnings)?;
        }
        Ok(())
    }

    fn check_combinations(
        &self,
        plan: &SelectPlan,
        bindings: &Bindings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let product = &self.in_select_cartesian_product;
        if let PartitionRestriction::Keys(keys) = &plan.restrictions.partition
            && plan.restrictions.has_partition_in()
        {
            let mut count = 1_u64;
            for values in keys {
                count = count.saturating_mul(allowed(values, bindings)?);
            }
            product.guard(count, "partition key", warnings)?;
            self.partition_keys_in_select.guard(count, &plan.table.name, warnings)?;
        }
        let (mut count, mut has_in) = (1_u64, false);
        for restriction in &plan.restrictions.clustering {
            let (values, is_in) = match restriction {
                ClusteringRestriction::Values { values, .. } => {
                    (allowed(values, bindings)?, !matches!(values, Allowed::One(_)))
                }
                ClusteringRestriction::Tuples { values, .. } => match values {
                    TupleValues::One(_) => (1, false),
                    TupleValues::Many(tuples) => (tuples.len() as u64, true),
                    TupleValues::List(term) => (elements(term, bindings)?, true),
                },
                ClusteringRestriction::Slice { .. } => (1, false),
            };
            count = count.saturating_mul(values);
            has_in |= is_in;
        }
        if has_in { product.guard(count, "clustering key", warnings) } else { Ok(()) }
    }

    /// Checks the consistency levels of a read, by name.
    pub fn check_read_levels(&self, levels: &[&str], warnings: &mut Vec<String>) -> Result<()> {
        check_levels(&self.read_consistency_levels, levels, warnings)
    }

    /// Checks the consistency levels of a write, by name.
    pub fn check_write_levels(&self, levels: &[&str], warnings: &mut Vec<String>) -> Result<()> {
        check_levels(&self.write_consistency_levels, levels, warnings)
    }
}

/// Whether filters are on several columns whose values change apart from each other: two that are not of the key, or a static one and any
/// other filter.
fn intersects_mutable_columns(plan: &SelectPlan) -> bool {
    let filters = &plan.restrictions.filters;
    let filtered: BTreeSet<usize> =
        filters.iter().flat_map(|filter| filter.subject.columns()).copied().collect();
    let columns = || filtered.iter().map(|&column| &plan.table.columns[column]);
    let has_static = columns().any(Column::is_static);
    (has_static && filters.len() > 1) || columns().filter(|column| !column.is_primary_key()).count() > 1
}

fn check_levels(guardrail: &Values, levels: &[&str], warnings: &mut Vec<String>) -> Result<()> {
    if !guardrail.is_set() {
        return Ok(());
    }
    let levels: BTreeSet<&str> = levels.iter().copied().collect();
    guardrail.guard(&levels, warnings).map(|_| ())
}

/// How many values a column may have.
fn allowed(values: &Allowed, bindings: &Bindings<'_>) -> Result<u64> {
    match values {
        Allowed::One(_) => Ok(1),
        Allowed::Many(terms) => Ok(terms.len() as u64),
        Allowed::List(term) => elements(term, bindings),
    }
}

/// The elements of a list for IN. A list that cannot be read is refused where it is used.
fn elements(term: &Term, bindings: &Bindings<'_>) -> Result<u64> {
    Ok(match term.evaluate(bindings)? {
        Bound::Bytes(list) => {
            cql_lite::types::codec::elements(&list).map_or(0, |list| list.remaining() as u64)
        }
        Bound::Null | Bound::Unset => 0,
    })
}
