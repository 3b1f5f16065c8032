//! Requests that took long are logged with their statement, so that an operator sees which.
//!
//! Invariants:
//! * Values are not logged: neither those that were bound nor those that are written in the statement.
//! * A shard logs a bounded number of lines a second. It counts the others, and says with the next line how many they were.
//! * It remembers the last ones, for `system_views.slow_queries`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use helenus_execution::shard::context::ShardContext;
use helenus_observe::receipt::Receipt;
use helenus_query::statement::Description;

/// Most lines a second.
const LINES_A_SECOND: u32 = 5;
/// Most bytes of a statement in a line.
const TEXT_BYTES_MAX: usize = 2_000;

/// Requests that a shard remembers.
const REMEMBERED_MAX: usize = 1_000;

/// A request that took long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    pub keyspace: String,
    pub table: String,
    /// Without its values.
    pub text: String,
    /// When it was answered.
    pub ended_micros: i64,
    pub duration: Duration,
}

/// What a shard has logged lately.
#[derive(Debug, Default)]
pub struct SlowRequests {
    /// The newest first. Their texts have their values, and are cut: most of them are never looked at.
    remembered: RefCell<VecDeque<SlowRequest>>,
    second: Cell<u64>,
    lines: Cell<u32>,
    untold: Cell<u64>,
}

impl SlowRequests {
    /// The last slow requests of a shard, the newest first. Batches are left out: they have no table of their own.
    pub fn remembered(context: &ShardContext) -> Vec<SlowRequest> {
        context.layers.get::<Self>().shown()
    }

    pub fn forget(context: &ShardContext) {
        context.layers.get::<Self>().remembered.take();
    }

    fn shown(&self) -> Vec<SlowRequest> {
        let without_values =
            |request: &SlowRequest| SlowRequest { text: without_values(&request.text), ..request.clone() };
        self.remembered.borrow().iter().map(without_values).collect()
    }

    fn remember(&self, request: SlowRequest) {
        let mut remembered = self.remembered.borrow_mut();
        remembered.truncate(REMEMBERED_MAX - 1);
        remembered.push_front(request);
    }

    /// Whether a line may be written now; the number of requests without one since the last line.
    fn admit(&self, now: Duration) -> Option<u64> {
        if self.second.replace(now.as_secs()) != now.as_secs() {
            self.lines.set(0);
        }
        if self.lines.get() == LINES_A_SECOND {
            self.untold.set(self.untold.get() + 1);
            return None;
        }
        self.lines.set(self.lines.get() + 1);
        Some(self.untold.take())
    }
}

/// Notes a request if it took long. `statement`: `None` for a batch, and for a request whose statement is not known. `receipt`: `None` if the
/// request has none.
#[inline]
pub fn note(
    context: &ShardContext,
    client: SocketAddr,
    statement: Option<&Description>,
    duration: Duration,
    receipt: Option<&Receipt>,
) {
    let limit_ms = context.node.config.slow_query_log_timeout_ms;
    if limit_ms > 0 && duration >= Duration::from_millis(limit_ms) {
        note_slow(context, client, statement, duration, receipt);
    }
}

#[cold]
fn note_slow(
    context: &ShardContext,
    client: SocketAddr,
    statement: Option<&Description>,
    duration: Duration,
    receipt: Option<&Receipt>,
) {
    context.metrics.slow_requests.increment();
    let requests: &SlowRequests = context.layers.get();
    if let Some((statement, table)) = statement.and_then(|statement| Some((statement, statement.table()?))) {
        requests.remember(SlowRequest {
            keyspace: table.keyspace.clone(),
            table: table.name.clone(),
            text: shortened(&statement.text).to_owned(),
            ended_micros: context.clock.now_micros(),
            duration,
        });
    }
    let Some(untold) = requests.admit(context.clock.monotonic()) else { return };
    let (text, keyspace) = match statement {
        Some(statement) => (shown(&statement.text), statement.keyspace.as_deref().unwrap_or_default()),
        None => ("(a batch, or a statement that was refused)".to_owned(), ""),
    };
    let receipt = receipt.map(Receipt::text);
    tracing::warn!(target: "helenus::slow_requests", statement = text, keyspace, %client, ?duration, receipt, untold, "a request was slow");
}

/// The text of a statement for operators: without values, and not longer than a line.
pub fn shown(text: &str) -> String {
    without_values(shortened(text))
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Characters of a UUID.
const UUID_LENGTH: usize = 36;

fn begins_uuid(first: char, rest: impl Iterator<Item = char>) -> bool {
    let characters: Vec<char> = std::iter::once(first).chain(rest).take(UUID_LENGTH).collect();
    let fits = |(index, character): (usize, &char)| match index {
        8 | 13 | 18 | 23 => *character == '-',
        _ => character.is_ascii_hexdigit(),
    };
    characters.len() == UUID_LENGTH && characters.iter().enumerate().all(fits)
}

/// Words that are values.
const VALUE_WORDS: [&str; 4] = ["true", "false", "nan", "infinity"];

/// The word that begins with `first` if it is a value, as its number of characters.
fn value_word(first: char, rest: impl Iterator<Item = char>) -> Option<usize> {
    let is_of_name = |character: &char| character.is_alphanumeric() || *character == '_';
    // One character more than any of them has.
    let word: String = std::iter::once(first).chain(rest).take_while(is_of_name).take(9).collect();
    VALUE_WORDS.iter().find(|value| value.eq_ignore_ascii_case(&word)).map(|value| value.len())
}

/// Takes the sign of a value away that is about to be shown. Behind a name or value it is an operator.
fn take_sign(shown: &mut String) {
    if let Some(before) = shown.strip_suffix(['-', '+'])
        && before.trim_end().ends_with(['(', ',', '=', '<', '>', '[', '{', ':'])
    {
        shown.truncate(before.len());
    }
}

/// The statement with `?` in the place of texts, numbers with their signs, booleans, UUIDs and blobs.
pub fn without_values(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    // Whether the character before is a part of a name.
    let mut is_in_name = false;
    while let Some(character) = rest.next() {
        match character {
            '-' | '/' if rest.peek() == Some(&character) => {
                while rest.next_if(|next| *next != '\n').is_some() {}
            }
            '/' if rest.next_if_eq(&'*').is_some() => {
                let mut before = ' ';
                for inside in rest.by_ref() {
                    if inside == '/' && before == '*' {
                        break;
                    }
                    before = inside;
                }
            }
            '\'' => {
                // A quote within is written twice.
                while let Some(inside) = rest.next() {
                    if inside == '\'' && rest.next_if_eq(&'\'').is_none() {
                        break;
                    }
                }
                shown.push('?');
            }
            '$' if rest.next_if_eq(&'$').is_some() => {
                let mut before = ' ';
                for inside in rest.by_ref() {
                    if inside == '$' && before == '$' {
                        break;
                    }
                    before = inside;
                }
                shown.push('?');
            }
            '"' => {
                shown.push(character);
                for inside in rest.by_ref() {
                    shown.push(inside);
                    if inside == '"' {
                        break;
                    }
                }
            }
            _ if !is_in_name && begins_uuid(character, rest.clone()) => {
                rest.nth(UUID_LENGTH - 2);
                shown.push('?');
            }
            '0'..='9' if !is_in_name => {
                let is_of_value = |next: &char| next.is_alphanumeric() || matches!(next, '-' | '.');
                while rest.next_if(is_of_value).is_some() {}
                take_sign(&mut shown);
                shown.push('?');
            }
            _ if !is_in_name && let Some(length) = value_word(character, rest.clone()) => {
                rest.nth(length - 2);
                take_sign(&mut shown);
                shown.push('?');
            }
            _ => shown.push(character),
        }
        is_in_name = character.is_alphanumeric() || character == '_';
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_written_in_a_statement_are_left_out() {
        for (text, shown) in [
            ("SELECT * FROM t1 WHERE k = 'it''s' AND c >= 17", "SELECT * FROM t1 WHERE k = ? AND c >= ?"),
            ("INSERT INTO t (a, b) VALUES (-1.5e7, 0xCAFE)", "INSERT INTO t (a, b) VALUES (?, ?)"),
            (
                "UPDATE t SET v = v -5, w = w - 1, is_true = True WHERE truer = -7 AND k = 1",
                "UPDATE t SET v = v -?, w = w - ?, is_true = ? WHERE truer = ? AND k = ?",
            ),
            (
                "UPDATE \"T 2\" SET v_3 = $$a$b$$ WHERE id = 9bbfe6f2-7752-4d75-aeb2-8510df869194",
                "UPDATE \"T 2\" SET v_3 = ? WHERE id = ?",
            ),
            ("SELECT 'no end", "SELECT ?"),
        ] {
            assert_eq!(without_values(text), shown);
        }
        let uuid = "SELECT * FROM t WHERE id = cafe0000-7752-4d75-aeb2-8510df869194 AND cafe = 7";
        assert_eq!(without_values(uuid), "SELECT * FROM t WHERE id = ? AND cafe = ?");
        let comments = "SELECT a -- it's\n FROM t /* it's */ WHERE k = 'x' // 'y'";
        assert_eq!(without_values(comments), "SELECT a \n FROM t  WHERE k = ? ");
    }

    #[test]
    fn lines_are_bounded_and_the_others_are_counted() {
        let requests = SlowRequests::default();
        let told = (0..8).filter_map(|_| requests.admit(Duration::from_millis(7_100))).count();
        assert_eq!(told, 5);
        assert_eq!(requests.admit(Duration::from_secs(8)), Some(3));
        assert_eq!(requests.admit(Duration::from_secs(8)), Some(0));
    }

    #[test]
    fn remembered_requests_are_shown_without_values_and_the_newest_first() {
        let requests = SlowRequests::default();
        for (text, ended_micros) in [("SELECT v FROM t WHERE k = 'secret'", 1), ("SELECT 2", 2)] {
            requests.remember(SlowRequest {
                keyspace: "ks".to_owned(),
                table: "t".to_owned(),
                text: text.to_owned(),
                ended_micros,
                duration: Duration::from_secs(1),
            });
        }
        let shown: Vec<String> = requests.shown().into_iter().map(|request| request.text).collect();
        assert_eq!(shown, ["SELECT ?", "SELECT v FROM t WHERE k = ?"]);
    }

    #[test]
    fn a_long_statement_is_cut_between_characters() {
        let text = format!("x{}", "ä".repeat(2_000));
        assert_eq!(shortened(&text).len(), 1_999);
        assert_eq!(shortened("short"), "short");
    }
}
