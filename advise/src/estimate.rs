//! The charge that is expected of a request, by the formula of receipts (docs/costs.md).

use cql_lite::frame::Consistency;
use helenus_observe::receipt::{Count, Receipt};
use helenus_query::plan::BatchPlan;
use helenus_query::plan::modify::{ModifyKind, ModifyPlan};
use helenus_query::schema::catalog::Table;

use crate::workload::TableFacts;

/// Bytes of a row whose file does not say.
const ROW_BYTES: u64 = 100;
/// Rows that an index is taken to find where the file does not say.
pub const ASSUMED_ROWS: u64 = 100;
/// Parts of the ring that a scan asks one by one: those of three nodes with 16 tokens.
const RING_PARTS: u64 = 48;
/// Bytes of a partition above which it is large, as for EXPLAIN and Cassandra.
pub const LARGE_PARTITION_BYTES: u64 = 100 << 20;
/// Rows of a partition above which it is large.
pub const LARGE_PARTITION_ROWS: u64 = 100_000;
/// Elements of a collection above which rows are better.
pub const ELEMENTS_MAX: u64 = 1_000;

/// How rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Rows are named by their whole keys.
    Rows,
    /// Partitions are named.
    Partitions,
    Index,
    Scan,
}

impl Access {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows | Self::Partitions => "KEYS",
            Self::Index => "INDEX",
            Self::Scan => "SCAN",
        }
    }
}

/// What a table has.
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    facts: TableFacts,
    has_clustering: bool,
}

impl Volume {
    pub fn new(table: &Table, facts: TableFacts) -> Self {
        Self { facts, has_clustering: table.clustering_key_count > 0 }
    }

    pub fn rows(&self) -> Option<u64> {
        self.facts.rows
    }

    /// At least one. `None`: the file does not say.
    pub fn rows_of_partition(&self) -> Option<u64> {
        if !self.has_clustering {
            return Some(1);
        }
        let partitions = self.facts.partitions.filter(|partitions| *partitions > 0)?;
        Some(self.facts.rows?.div_ceil(partitions).max(1))
    }

    pub fn row_bytes(&self) -> u64 {
        self.facts.row_bytes.unwrap_or(ROW_BYTES)
    }

    pub fn partition_bytes(&self) -> Option<u64> {
        Some(self.rows_of_partition()?.saturating_mul(self.row_bytes()))
    }
}

/// Replicas that a read needs at a level. `local`: those in the data center of the client.
pub fn replicas_read(level: Consistency, replicas: u64, local: u64) -> u64 {
    let majority = |of: u64| of / 2 + 1;
    let needed = match level {
        Consistency::Any | Consistency::One | Consistency::LocalOne | Consistency::NodeLocal => 1,
        Consistency::Two => 2,
        Consistency::Three => 3,
        Consistency::All => replicas,
        Consistency::LocalQuorum | Consistency::LocalSerial => majority(local),
        Consistency::Quorum | Consistency::EachQuorum | Consistency::Serial => majority(replicas),
    };
    needed.min(replicas)
}

/// The charge of a read, by the numbers of its ranges and rows.
pub fn read(replicas: u64, ranges: u64, rows: u64, row_bytes: u64) -> u64 {
    let mut counts = Receipt::default();
    counts.add(Count::RangesRead, ranges);
    counts.add(Count::RowsRead, rows);
    counts.add(Count::BytesRead, rows.saturating_mul(row_bytes));
    counts.add(Count::ReplicasRead, replicas);
    counts.charge()
}

/// The number of ranges that a search by an index or a scan asks for, by the number of its rows.
pub fn ranges(access: Access, partitions: u64, rows: u64) -> u64 {
    match access {
        Access::Rows | Access::Partitions => partitions,
        // Each row that is found is read by its key.
        Access::Index => rows,
        Access::Scan => RING_PARTS,
    }
}

/// A write of a row to a table.
pub fn write(replicas: u64, row_bytes: u64) -> u64 {
    let mut counts = Receipt::default();
    add_write(&mut counts, replicas, row_bytes);
    counts.charge()
}

fn add_write(counts: &mut Receipt, replicas: u64, row_bytes: u64) {
    counts.add(Count::PartitionsWritten, 1);
    counts.add(Count::RowsWritten, 1);
    counts.add(Count::BytesWritten, row_bytes);
    counts.add(Count::ReplicasWritten, replicas);
}

/// A modification of one row in one partition.
pub fn modification(plan: &ModifyPlan, replicas: u64, row_bytes: u64) -> u64 {
    let mut counts = Receipt::default();
    add_modification(&mut counts, plan, replicas, row_bytes);
    counts.charge()
}

/// A batch whose statements change a row each.
pub fn batch(plan: &BatchPlan, replicas: u64, row_bytes: u64) -> u64 {
    // Conditional ones are of one partition, and read and decided together.
    let is_conditional = plan.statements.iter().any(|statement| statement.conditions.is_some());
    let mut charge = 0_u64;
    let mut counts = Receipt::default();
    for statement in &plan.statements {
        if is_conditional {
            add_write(&mut counts, replicas, row_bytes);
        } else {
            charge = charge.saturating_add(modification(statement, replicas, row_bytes));
        }
    }
    if is_conditional {
        counts.set_back(&[Count::PartitionsWritten], &Receipt::default());
        counts.add(Count::PartitionsWritten, 1);
        add_transaction(&mut counts, replicas, row_bytes);
        charge = counts.charge();
    }
    charge
}

fn add_modification(counts: &mut Receipt, plan: &ModifyPlan, replicas: u64, row_bytes: u64) {
    let is_deletion = plan.kind == ModifyKind::Delete && plan.operations.is_empty();
    add_write(counts, replicas, if is_deletion { 1 } else { row_bytes });
    if plan.conditions.is_some() {
        add_transaction(counts, replicas, row_bytes);
    } else if plan.needs_read() || plan.is_counter() {
        counts.add(Count::RangesRead, 1);
        counts.add(Count::RowsRead, 1);
        counts.add(Count::BytesRead, row_bytes);
        // Where it is led.
        counts.add(Count::ReplicasRead, 1);
    }
}

fn add_transaction(counts: &mut Receipt, replicas: u64, row_bytes: u64) {
    counts.add(Count::Transactions, 1);
    counts.add(Count::RangesRead, 1);
    counts.add(Count::RowsRead, 1);
    counts.add(Count::BytesRead, row_bytes);
    counts.add(Count::ReplicasRead, replicas_read(Consistency::Serial, replicas, replicas));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_estimates_are_those_of_the_documentation() {
        assert_eq!(read(1, 1, 1, 100), 12);
        assert_eq!(read(replicas_read(Consistency::Quorum, 3, 3), 1, 1, 100), 24);
        assert_eq!(read(1, 1, 0, 100), 10);
        assert_eq!(write(3, 100), 78);
        let mut transaction = Receipt::default();
        add_write(&mut transaction, 3, 60);
        add_transaction(&mut transaction, 3, 60);
        assert_eq!(transaction.charge(), 192);
    }

    #[test]
    fn levels_need_no_more_replicas_than_there_are() {
        for (level, of_one, of_three, of_five) in [
            (Consistency::LocalOne, 1, 1, 1),
            (Consistency::Two, 1, 2, 2),
            (Consistency::Three, 1, 3, 3),
            (Consistency::LocalQuorum, 1, 2, 3),
            (Consistency::All, 1, 3, 5),
        ] {
            let needed = |replicas| replicas_read(level, replicas, replicas);
            assert_eq!((needed(1), needed(3), needed(5)), (of_one, of_three, of_five), "{}", level.name());
        }
        let of_two_data_centers = |level| replicas_read(level, 6, 3);
        assert_eq!(of_two_data_centers(Consistency::Quorum), 4);
        assert_eq!(of_two_data_centers(Consistency::LocalQuorum), 2);
        assert_eq!(of_two_data_centers(Consistency::LocalSerial), 2);
    }
}
