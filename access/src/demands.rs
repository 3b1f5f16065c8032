//! What a statement demands of the role that executes it, in the order in which it is checked: the first that is missing is the refusal.
//!
//! A statement demands the same each time as long as the catalog is the same, so its demands are found once.

use helenus_query::plan::BatchPlan;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::Catalog;
use helenus_query::statement::{Description, Statement};
use helenus_roles::{Permission, Resource};

use crate::demand::Demand;
use crate::schema_demands::schema_demands;
use crate::view_demands;

const READ_HIDDEN: &str = "Only superusers are allowed to read the tables from which views are kept";

/// The demands of a statement. Statements about roles have rules of their own ([`crate::authorize`]).
pub fn demands(statement: &Statement, catalog: &Catalog) -> Vec<Demand> {
    let mut demands = Vec::new();
    match statement {
        Statement::Explain(explain) => return self::demands(&explain.plan.statement, catalog),
        Statement::Select(select) => of_select(&select.plan, select, catalog, &mut demands),
        Statement::Modify(modify) => {
            of_modification(&modify.plan, &mut demands);
            of_functions(modify, &mut demands);
        }
        Statement::Batch(batch) => {
            let BatchPlan { statements, .. } = &batch.plan;
            for plan in statements {
                of_modification(plan, &mut demands);
            }
            of_functions(batch, &mut demands);
        }
        Statement::Transaction(transaction) => {
            let plan = &transaction.plan;
            for select in plan.reads() {
                of_transaction_read(select, catalog, &mut demands);
            }
            for modification in &plan.modifications {
                of_modification(modification, &mut demands);
            }
            of_functions(transaction, &mut demands);
        }
        Statement::Check(check) => view_demands::of_check(&check.plan, catalog, &mut demands),
        Statement::Truncate(truncate) => demands.push(Demand::on(Permission::Modify, &truncate.plan)),
        Statement::Schema(schema) => {
            demands.extend(schema_demands(&schema.plan, schema.keyspace.as_deref(), catalog));
        }
        Statement::Roles(_) | Statement::Use(_) | Statement::Describe(_) => {}
    }
    demands
}

fn of_read(plan: &SelectPlan, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let (table, columns) = (plan.table.clone(), plan.read_columns.clone());
    if table.is_hidden() {
        return demands.push(Demand::Superuser { refusal: READ_HIDDEN });
    }
    if let Some(view) = &table.view {
        return view_demands::of_read(&table.keyspace, view, catalog, demands);
    }
    demands.push(match catalog.keyspace(&table.keyspace).and_then(|keyspace| keyspace.feed_base(&table)) {
        Some(base) => Demand::FeedLog { log: table, columns, base: base.clone() },
        None => Demand::Columns { permission: Permission::Select, table, columns },
    });
}

fn of_select(plan: &SelectPlan, statement: &Description, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let table = &plan.table;
    of_read(plan, catalog, demands);
    of_functions(statement, demands);
    let columns = plan.restricted_masked_columns.clone();
    // Those of a view are masked by the tables that it is computed of, whose UNMASK it demands.
    if !columns.is_empty() && table.view.is_none() {
        demands.push(Demand::MaskedColumns {
            keyspace: table.keyspace.clone(),
            table: table.name.clone(),
            columns,
        });
    }
}

/// A read whose values decide what is written, and are written: so those of masked columns are for who may see them.
fn of_transaction_read(plan: &SelectPlan, catalog: &Catalog, demands: &mut Vec<Demand>) {
    let (table, columns) = (&plan.table, &plan.read_columns);
    let reads_masked = columns.iter().any(|&index| table.masks.contains_key(&table.columns[index].id));
    of_read(plan, catalog, demands);
    if reads_masked {
        demands.push(Demand::on(Permission::Unmask, table));
    }
}

fn of_modification(plan: &ModifyPlan, demands: &mut Vec<Demand>) {
    let table = &plan.table;
    demands.push(match plan.written_columns() {
        Some(columns) => Demand::Columns { permission: Permission::Modify, table: table.clone(), columns },
        None => Demand::on(Permission::Modify, table),
    });
    if let Some(columns) = plan.shown_columns() {
        demands.push(Demand::Columns { permission: Permission::Select, table: table.clone(), columns });
    }
}

fn of_functions(statement: &Description, demands: &mut Vec<Demand>) {
    let functions = statement.executed_functions.iter().cloned();
    demands.extend(functions.map(|function| Demand::new(Permission::Execute, Resource::Function(function))));
}
