//! What requests are charged, by table, statement and role, for `system_views.charges` and `top_statements`.
//!
//! Invariants:
//! * A request counts whether or not its client has asked for a receipt. Of many that have none some get one, by chance, and stand for the
//!   others: the rest costs a countdown.
//! * A shard keeps a bounded number of sums, and of each statement a bounded part, without its values.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use helenus_audit::entry::ANONYMOUS;
use helenus_execution::coordinator::batch_request::BatchRequest;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::charge_sums::{ChargeHistory, ChargeSum, ChargeSums, ChargedTo};
use helenus_observe::receipt::Receipt;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_query::statement::{Description, Statement, StatementId};
use lru::LruCache;

use super::slow_requests;

/// Bytes of a statement that are kept.
const TEXT_BYTES_MAX: usize = 500;
/// Bytes of a statement that are looked at.
const LOOKED_AT_BYTES_MAX: usize = 64 << 10;
/// Statements of a batch that are shown.
const BATCH_TEXTS_MAX: usize = 3;
/// Statements whose text without values a shard remembers.
const KNOWN_TEXTS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The sums of a shard.
#[derive(Debug)]
pub struct Charges {
    history: RefCell<ChargeHistory>,
    /// To take the values out of a text is more work than to sum a request.
    texts: RefCell<LruCache<StatementId, Rc<str>>>,
}

impl Default for Charges {
    fn default() -> Self {
        Self { history: RefCell::default(), texts: RefCell::new(LruCache::new(KNOWN_TEXTS)) }
    }
}

impl Charges {
    /// The text of a statement as it is summed.
    fn text_of(context: &ShardContext, statement: &Description) -> Rc<str> {
        let mut texts = context.layers.get::<Self>().texts.borrow_mut();
        texts.get_or_insert(statement.id, || shown(&statement.text).into()).clone()
    }

    /// For how many requests one that begins `now` (monotonic time) without a receipt is counted. 0: it is not.
    #[inline]
    pub fn take(context: &ShardContext, now: Duration) -> u64 {
        context.layers.get::<Self>().history.borrow_mut().take(now)
    }

    /// The sums of the last 5 to 10 minutes.
    pub fn last_minutes(context: &ShardContext) -> ChargeSums {
        context.layers.get::<Self>().history.borrow_mut().last_minutes(context.clock.monotonic())
    }

    /// The sums of the present hour and of the one before.
    pub fn last_hours(context: &ShardContext) -> ChargeSums {
        context.layers.get::<Self>().history.borrow_mut().last_hours(context.clock.now_micros())
    }

    /// The sums of the last hours, with the microsecond since the epoch at which each began.
    pub fn hours(context: &ShardContext) -> Vec<(i64, ChargeSums)> {
        context.layers.get::<Self>().history.borrow_mut().hours(context.clock.now_micros())
    }
}

/// A request that is to be summed.
#[derive(Debug)]
pub struct OpenCharge {
    /// For how many requests it stands.
    times: u64,
    role: Option<Rc<str>>,
    /// `None`: not known yet, or it reads and writes no stored table.
    to: Option<ChargedTo>,
}

impl OpenCharge {
    pub fn begin(times: u64, role: Option<Rc<str>>) -> Self {
        Self { times, role, to: None }
    }

    /// It executes this statement.
    pub fn of_statement(&mut self, context: &ShardContext, statement: &Statement) {
        let text = || Charges::text_of(context, statement);
        match statement {
            Statement::Select(select) => self.of(text, [&*select.plan.table]),
            Statement::Modify(modify) => self.of(text, [&*modify.plan.table]),
            Statement::Batch(batch) => self.of(text, batch.plan.statements.iter().map(|plan| &*plan.table)),
            Statement::Transaction(transaction) => self.of(text, [&*transaction.plan.table]),
            Statement::Explain(explain) => {
                self.of_statement(context, &explain.plan.statement);
                if let Some(to) = &mut self.to {
                    to.statement = text().to_string();
                }
            }
            Statement::Truncate(_)
            | Statement::Check(_)
            | Statement::Use(_)
            | Statement::Schema(_)
            | Statement::Roles(_)
            | Statement::Describe(_) => {}
        }
    }

    /// It executes this batch of the protocol.
    pub fn of_batch(&mut self, batch: &BatchRequest) {
        let text = || {
            let texts = batch.statements.iter().map(|statement| &*statement.modification.source().0.text);
            cut(format!("BEGIN BATCH {} APPLY BATCH", different(texts).join("; "))).into()
        };
        self.of(text, batch.plans().map(|plan| &*plan.table));
    }

    fn of<'t>(&mut self, text: impl FnOnce() -> Rc<str>, tables: impl IntoIterator<Item = &'t Table>) {
        let mut tables = tables.into_iter();
        let Some(first) = tables.next().filter(|table| table.kind == TableKind::Stored) else { return };
        let is_one = tables.all(|table| table.id == first.id);
        let (keyspace, table) = if is_one { (&*first.keyspace, &*first.name) } else { ("", "") };
        let role = self.role.as_deref().unwrap_or(ANONYMOUS);
        self.to = Some(ChargedTo {
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            role: role.to_owned(),
            statement: text().to_string(),
        });
    }

    /// It is answered.
    pub fn end(&self, context: &ShardContext, receipt: &Receipt, has_failed: bool) {
        let Some(to) = &self.to else { return };
        let now = (context.clock.monotonic(), context.clock.now_micros());
        let request = ChargeSum::of(receipt, has_failed, self.times);
        context.metrics.charge.add(request.charge);
        context.layers.get::<Charges>().history.borrow_mut().add(now, to, &request);
    }
}

/// The first of these statements that differ in more than their values.
fn different<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut last = None;
    for text in texts {
        // Most batches have one statement many times.
        if last.replace(text) == Some(text) {
            continue;
        }
        let text = shown(text);
        if !found.contains(&text) {
            if found.len() == BATCH_TEXTS_MAX {
                found.push("…".to_owned());
                break;
            }
            found.push(text);
        }
    }
    found
}

/// The text of a statement without its values, on one line. Lists of values are one, however many they have: such statements are summed as one.
fn shown(text: &str) -> String {
    let looked_at = &text[..text.floor_char_boundary(LOOKED_AT_BYTES_MAX)];
    let text = slow_requests::without_values(looked_at);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for item in ["?: ?", "?", "(?)"] {
        for gap in [", ", ","] {
            let twice = format!("{item}{gap}{item}");
            while line.contains(&twice) {
                line = line.replace(&twice, item);
            }
        }
    }
    cut(line)
}

fn cut(mut line: String) -> String {
    line.truncate(line.floor_char_boundary(TEXT_BYTES_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_a_batch_differ_in_more_than_their_values() {
        let texts = ["DELETE FROM t WHERE k = 1", "DELETE FROM t WHERE k = 2", "DELETE FROM u WHERE k = 1"];
        assert_eq!(different(texts.into_iter()), ["DELETE FROM t WHERE k = ?", "DELETE FROM u WHERE k = ?"]);
    }

    #[test]
    fn statements_are_shown_without_values_and_on_one_line() {
        assert_eq!(
            shown("SELECT *\n  FROM t -- why\n WHERE a = 'secret'   AND b = 5"),
            "SELECT * FROM t WHERE a = ? AND b = ?"
        );
        for (text, expected) in [
            ("SELECT a FROM t WHERE k IN (1, -2,3) AND b = true", "SELECT a FROM t WHERE k IN (?) AND b = ?"),
            ("INSERT INTO t (k, m) VALUES (?, {'a': 1, 'b': 2})", "INSERT INTO t (k, m) VALUES (?, {?: ?})"),
            ("SELECT a FROM t WHERE (k, c) IN ((1, 2), (3, 4))", "SELECT a FROM t WHERE (k, c) IN ((?))"),
        ] {
            assert_eq!(shown(text), expected);
        }
        let values_are_long = format!("INSERT INTO t (k, v) VALUES ('{}', 1)", "x".repeat(3_000));
        assert_eq!(shown(&values_are_long), "INSERT INTO t (k, v) VALUES (?)");
        assert_eq!(shown("").len(), 0);
        let long = shown(&"é ".repeat(2_000));
        assert!(long.len() <= TEXT_BYTES_MAX && long.starts_with("é é"));
    }
}
