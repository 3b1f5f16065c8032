//! TAIL: the changes of a table as they come, in the order of time over all streams of its feed.
//!
//! Invariants:
//! * Every change is shown once. A change that is acknowledged within the window (see [`command`]) is shown in its place; nothing is shown
//!   that is younger.
//! * The streams of a generation are read up to the time of the next one, and only then those of the next one.

mod change;
mod command;
mod entry;
mod print;
mod source;
mod spans;

use std::time::{Duration, Instant};

use cql_lite::types::time::format_timestamp;

use crate::{
    connection::{Connection, Settings},
    error::ShellError,
    output::{Layout, Output},
};

pub use command::TailCommand;
use print::Printer;
use source::{Feed, Source, SpanEntries};
use spans::{Span, Spans};

/// How long after the last look new changes are looked for, at least.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Shows changes until the limit is reached, or, if the feed is off, until all of it is shown, or until Ctrl-C. Returns how many there were.
pub fn run(
    connection: &Connection,
    settings: &Settings,
    output: &mut Output,
    layout: Layout,
    command: &TailCommand,
) -> Result<u64, ShellError> {
    let settings = source::settings(settings);
    let feed = Feed::find(connection, &settings, command.keyspace.as_deref(), &command.table)?;
    let name = feed.name();
    if !feed.is_enabled && command.start == command::Start::Now {
        return Err(ShellError::Statement(format!(
            "The change feed of {name} is off. TAIL {name} FROM 'beginning' shows what is in it"
        )));
    }
    // A feed that is off gets nothing that could come late.
    let window_ms = if feed.is_enabled { command.window_ms } else { 0 };
    let is_enabled = feed.is_enabled;
    let mut source = Source::new(connection, settings, feed);
    let begin_ms = source.now_ms()?;
    let first_ms = command.start.resolve(begin_ms)?;
    let mut spans = Spans::from(first_ms);
    let mut printer = Printer::new(layout, output.in_color());
    if output.is_terminal() {
        eprintln!("Changes of {name} that are {window_ms} milliseconds old; Ctrl-C ends it.");
    }
    let ended = loop {
        let look = Instant::now();
        match show_next(&mut source, &mut spans, &mut printer, output, window_ms, command.limit) {
            Ok(Progress::Shown) => {}
            Ok(Progress::Reached) if !is_enabled => break Ok(()),
            Ok(Progress::Reached) => {
                // A look at the many streams of a large cluster takes time: they are not asked all the time.
                let pause = POLL_INTERVAL.max(look.elapsed());
                if let Err(error) = connection.block_on(async move { tokio::time::sleep(pause).await }) {
                    break Err(error);
                }
            }
            Ok(Progress::Limit) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    match ended {
        Ok(()) | Err(ShellError::Interrupted) => Ok(printer.count()),
        Err(error) => {
            // Where it got to, so that nothing has to be seen twice.
            if let Some(from_ms) = spans.begin_ms().filter(|from_ms| first_ms != Some(*from_ms)) {
                eprintln!("TAIL {name} FROM '{}' goes on where this ends:", format_timestamp(from_ms));
            }
            Err(error)
        }
    }
}

/// What a step has come to.
enum Progress {
    /// A span was shown; there is more.
    Shown,
    /// All that is old enough was shown.
    Reached,
    /// So many changes were shown as were asked for.
    Limit,
}

/// Shows the next span.
fn show_next(
    source: &mut Source<'_>,
    spans: &mut Spans,
    printer: &mut Printer,
    output: &mut Output,
    window_ms: i64,
    limit: Option<u64>,
) -> Result<Progress, ShellError> {
    let safe_ms = source.now_ms()?.saturating_sub(window_ms);
    // Asked for after the time: a generation that begins before `safe_ms` is known by now.
    let generations_ms = source.generations_ms()?;
    let Some(span) = spans.next(&generations_ms, safe_ms) else { return Ok(Progress::Reached) };
    let Some(entries) = read(source, spans, &span)? else { return Ok(Progress::Shown) };
    let mut changes = change::changes(&entries);
    let left = limit.map(|limit| usize::try_from(limit - printer.count()).unwrap_or(usize::MAX));
    changes.truncate(left.unwrap_or(usize::MAX));
    output.lines(&printer.lines(&changes))?;
    spans.done(&span, entries.len(), safe_ms);
    Ok(if limit == Some(printer.count()) {
        Progress::Limit
    } else if span.until_ms < safe_ms {
        Progress::Shown
    } else {
        Progress::Reached
    })
}

/// The entries of a span; `None`: they are too many, the spans are shorter now.
fn read(
    source: &mut Source<'_>,
    spans: &mut Spans,
    span: &Span,
) -> Result<Option<Vec<entry::Entry>>, ShellError> {
    if let SpanEntries::InOrder(entries) = source.read(span, true)? {
        return Ok(Some(entries));
    }
    if spans.shorten(span) {
        return Ok(None);
    }
    match source.read(span, false)? {
        SpanEntries::InOrder(entries) => Ok(Some(entries)),
        SpanEntries::TooMany => Ok(None),
    }
}
