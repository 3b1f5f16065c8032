//! The steps of EXPLAIN, and what all kinds of statements say in the same words.

use std::sync::Arc;

use cql_lite::frame::Consistency;
use cql_lite::types::codec::{write_element, write_field};
use helenus_observe::receipt::Receipt;
use helenus_query::bind::OwnedBindings;
use helenus_query::functions::CallContext;
use helenus_query::run::select::ResultPage;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_query::statement::ExplainPlan;
use helenus_ring::member::Member;
use serde_json::{Value, json};

use crate::coordinator::RequestOptions;
use crate::coordinator::replica::only_here;
use crate::shard::context::ShardContext;

/// Partitions whose replicas are shown one by one.
const SHOWN_PARTITIONS_MAX: usize = 8;
/// Partitions of one request above which it is warned of.
pub const FAN_OUT_MAX: usize = 10;

/// A row of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    operation: &'static str,
    target: String,
    detail: String,
    /// Expected or met.
    rows: Option<u64>,
    charge: Option<u64>,
}

/// The steps of a statement so far.
#[derive(Debug, Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    pub fn add(&mut self, operation: &'static str, target: impl Into<String>, detail: impl Into<String>) {
        let (target, detail) = (target.into(), detail.into());
        self.0.push(Step { operation, target, detail, rows: None, charge: None });
    }

    /// A statement, or a part of it, with what it is expected to read or write.
    pub fn add_expected(
        &mut self,
        operation: &'static str,
        target: impl Into<String>,
        detail: impl Into<String>,
        rows: Option<u64>,
        charge: Option<u64>,
    ) {
        self.add(operation, target, detail);
        if let Some(step) = self.0.last_mut() {
            (step.rows, step.charge) = (rows, charge);
        }
    }

    /// What may become expensive, and what would mend it.
    pub fn warn(&mut self, target: impl Into<String>, detail: impl Into<String>) {
        self.add("WARNING", target, detail);
    }

    /// The page of the answer.
    pub fn page(&self, json: bool, receipt: Option<&Receipt>) -> ResultPage {
        let mut page = ResultPage::default();
        if json {
            write_element(self.document(receipt).to_string().as_bytes(), &mut page.rows);
            page.row_count = 1;
            return page;
        }
        let number = |number: Option<u64>| {
            number.map(|number| i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes())
        };
        for (index, step) in self.0.iter().enumerate() {
            write_element(&(index as i32 + 1).to_be_bytes(), &mut page.rows);
            for text in [step.operation, &step.target, &step.detail] {
                write_element(text.as_bytes(), &mut page.rows);
            }
            for number in [number(step.rows), number(step.charge)] {
                write_field(number.as_ref().map(<[u8; 8]>::as_slice), &mut page.rows);
            }
        }
        page.row_count = self.0.len();
        page
    }

    fn document(&self, receipt: Option<&Receipt>) -> Value {
        let step = |step: &Step| {
            json!({
                "operation": step.operation,
                "target": step.target,
                "detail": step.detail,
                "rows": step.rows,
                "charge": step.charge,
            })
        };
        let steps: Vec<Value> = self.0.iter().map(step).collect();
        let receipt = receipt.map(|receipt| {
            receipt.shown().map(|(name, number)| (name.to_owned(), Value::from(number))).collect::<Value>()
        });
        json!({ "steps": steps, "receipt": receipt })
    }
}

/// A statement that is explained, with its values.
pub struct Explained<'a> {
    pub plan: &'a ExplainPlan,
    pub values: OwnedBindings,
    pub options: RequestOptions,
    pub call: CallContext,
}

/// The text for a consistency level and the replicas that it needs of all.
pub fn level(consistency: Consistency, needed: u64, of_all: u64) -> String {
    format!("consistency {}: {needed} of {of_all} replicas", consistency.name())
}

/// The replicas of a table's partitions by the present placement; 1 where only this node has it.
pub fn replica_count(context: &ShardContext, table: &Table) -> u64 {
    let view = context.cluster_view();
    if only_here::is_only_here(&view, &table.keyspace) {
        return 1;
    }
    view.placement(&table.keyspace).map_or(1, |placement| placement.replication().replica_count() as u64)
}

/// Adds the replicas of partitions.
pub fn add_replicas(
    context: &ShardContext,
    table: &Table,
    tokens: impl ExactSizeIterator<Item = i64>,
    steps: &mut Steps,
) {
    let view = context.cluster_view();
    if table.kind == TableKind::Virtual || only_here::is_only_here(&view, &table.keyspace) {
        return steps.add("REPLICAS", "", "this node alone");
    }
    let Some(placement) = view.placement(&table.keyspace) else { return };
    let more = tokens.len().saturating_sub(SHOWN_PARTITIONS_MAX);
    for token in tokens.take(SHOWN_PARTITIONS_MAX) {
        let shown = |member: &Arc<Member>| {
            let state = if view.is_alive(&member.host_id) { "" } else { " (down)" };
            format!("{}{state}", member.native_address)
        };
        let members: Vec<String> = placement.replicas(token).all().map(shown).collect();
        steps.add("REPLICAS", format!("token {token}"), members.join(", "));
    }
    if more > 0 {
        steps.add("REPLICAS", "", format!("and those of {more} more partitions"));
    }
}

/// "1 partition", "2 partitions".
pub fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
