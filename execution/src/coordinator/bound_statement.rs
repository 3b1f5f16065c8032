//! A modification with its values. What is derived from both is computed once for each request.
//!
//! Invariant: the partitions that a statement names are the same wherever a request uses them on this node, also where a
//! function computed them whose results differ from call to call.

use std::sync::Arc;

use helenus_query::bind::{BorrowedValues, OwnedBindings};
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::BatchPlan;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::restrictions::Values;
use helenus_query::plan::term::{BindValue, Bindings, Term};
use helenus_query::plan::transaction::TransactionPlan;
use helenus_query::run::keys::{PartitionKeys, partition_keys};
use helenus_query::run::modify::{ExistingRows, MutationSet, WriteContext, expand};
use helenus_query::schema::catalog::Table;
use helenus_query::statement::{Description, Prepared, Statement};
use helenus_query::stored_key::PartitionKey;

/// A modification of its own, or one of a batch.
#[derive(Clone)]
pub enum Modification {
    Single(Arc<Prepared<ModifyPlan>>),
    /// One statement of a BATCH text.
    InBatch {
        batch: Arc<Prepared<BatchPlan>>,
        index: usize,
    },
    /// One modification of a transaction.
    InTransaction {
        transaction: Arc<Prepared<TransactionPlan>>,
        index: usize,
    },
}

impl Modification {
    /// A statement of a BATCH message.
    pub fn of(statement: Statement) -> Result<Self> {
        match statement {
            Statement::Modify(statement) => Ok(Self::Single(statement)),
            _ => Err(RequestError::invalid(
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
            )),
        }
    }

    pub fn plan(&self) -> &ModifyPlan {
        match self {
            Self::Single(statement) => &statement.plan,
            Self::InTransaction { transaction, index } => &transaction.plan.modifications[*index],
            Self::InBatch { batch, index } => &batch.plan.statements[*index],
        }
    }

    /// The text that has this statement, and its index in that text if it is a BATCH.
    pub fn source(&self) -> (&Description, Option<usize>) {
        match self {
            Self::Single(statement) => (statement, None),
            Self::InTransaction { transaction, index } => (transaction, Some(*index)),
            Self::InBatch { batch, index } => (batch, Some(*index)),
        }
    }
}

/// A modification with its values and the partitions that it names.
#[derive(Clone)]
pub struct BoundStatement {
    pub modification: Modification,
    pub values: OwnedBindings,
    pub keys: PartitionKeys,
    call: CallContext,
    /// The INSERT that an INSERT JSON stands for.
    expanded: Option<Arc<ModifyPlan>>,
}

impl BoundStatement {
    pub fn new(modification: Modification, values: OwnedBindings, call: CallContext) -> Result<Self> {
        let (expanded, keys) = {
            let borrowed = values.borrow();
            let bindings = Bindings { values: &borrowed, call: &call };
            let expanded = expand(modification.plan(), &bindings)?;
            let plan = expanded.as_ref().unwrap_or_else(|| modification.plan());
            let keys = partition_keys(&plan.partition, &plan.table, &bindings)?;
            (expanded, keys)
        };
        Ok(Self { modification, values, keys, call, expanded: expanded.map(Arc::new) })
    }

    /// The plan, with INSERT JSON expanded.
    pub fn plan(&self) -> &ModifyPlan {
        self.expanded.as_deref().unwrap_or_else(|| self.modification.plan())
    }

    /// The partitions that the statement changes, with their table.
    pub fn partitions(&self) -> impl Iterator<Item = (&Table, &PartitionKey)> {
        self.changes().map(|(plan, key)| (&*plan.table, key))
    }

    /// The partitions that the statement changes, with its plan.
    pub fn changes(&self) -> impl Iterator<Item = (&ModifyPlan, &PartitionKey)> {
        self.keys.iter().map(|key| (self.plan(), key))
    }

    /// Refuses a partition key that another node would not compute again from the text and the values.
    pub fn check_repeatable(&self) -> Result<()> {
        let is_given =
            |values: &Values| matches!(values.only(), Some(Term::Constant(_) | Term::Marker { .. }));
        if self.plan().partition.iter().all(is_given) {
            return Ok(());
        }
        let again = Self::new(self.modification.clone(), self.values.clone(), self.call)?;
        if again.keys == self.keys { Ok(()) } else { Err(unrepeatable_key()) }
    }

    /// The values in the form in which plans evaluate them.
    pub fn borrow(&self) -> BoundValues<'_> {
        BoundValues { values: self.values.borrow(), call: &self.call }
    }

    /// Adds the changes of the statement to a set.
    pub fn add_to(
        &self,
        set: &mut MutationSet,
        write: &WriteContext,
        existing: Option<&dyn ExistingRows>,
    ) -> Result<()> {
        set.add(self.plan(), self.keys.clone(), &self.borrow().bindings(), write, existing)
    }

    /// As [`Self::add_to`], with these values: those that were given, and those of references.
    pub fn add_with(
        &self,
        set: &mut MutationSet,
        values: &[BindValue<'_>],
        write: &WriteContext,
        existing: &dyn ExistingRows,
    ) -> Result<()> {
        let bindings = Bindings { values, call: &self.call };
        set.add(self.plan(), self.keys.clone(), &bindings, write, Some(existing))
    }
}

/// Borrowed values of a [`BoundStatement`].
pub struct BoundValues<'a> {
    values: BorrowedValues<'a>,
    call: &'a CallContext,
}

impl BoundValues<'_> {
    pub fn bindings(&self) -> Bindings<'_> {
        Bindings { values: &self.values, call: self.call }
    }
}

/// The error for a partition key that differs from call to call.
pub fn unrepeatable_key() -> RequestError {
    RequestError::invalid(
        "A statement that reads before it writes cannot compute its partition key with a function whose results differ \
         from call to call",
    )
}
