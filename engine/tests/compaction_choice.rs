//! What compaction strategies choose, as text: tables, options, and the choice below them.
//!
//! `REWRITE=1 cargo test -p helenus-engine --test compaction_choice` writes the choices into the files; read what has changed
//! before you keep it. The format is that of the crate `datadriven`. Directives:
//!
//! * `tables`: the tables that there are from here on, a line each: a generation, then `size=MIB`, `level=N`, `keys=FIRST-LAST`
//!   (one letter each; a to z unless said), `times=FIRST-LAST` (seconds), `created=SECONDS`, `droppable=SHARE`.
//! * `choose now=SECONDS`: options as in `WITH compaction`, a `name: value` a line. It shows the inputs in their order, and where
//!   the output goes.
//! * `settle now=SECONDS`: the same, and the choice is carried out as if nothing were merged away, until nothing is chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

use datadriven::TestCase;
use helenus_engine::compaction::{Choice, CompactionOptions, TableSummary};

/// Compactions in a row above which a strategy is taken to go in circles.
const ROUNDS_MAX: usize = 100;

#[test]
fn strategies_choose_what_the_suites_say() {
    datadriven::walk(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compaction_choice"), |file| {
        let mut tables = Vec::new();
        file.run(|case| run(case, &mut tables));
    });
}

fn run(case: &mut TestCase, tables: &mut Vec<TableSummary>) -> Result<String, String> {
    if case.directive == "tables" {
        *tables = case.input.lines().map(table).collect::<Result<_, _>>()?;
        return Ok(String::new());
    }
    let now = case.try_take_arg("now").map_err(|error| error.to_string())?.unwrap_or(0);
    let given: Option<BTreeMap<String, String>> = case
        .input
        .lines()
        .map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    let options = match CompactionOptions::parse(&given.ok_or("an option is `name: value`")?) {
        Ok(options) => options,
        Err(error) => return Ok(format!("error: {error}\n")),
    };
    match case.directive.as_str() {
        "choose" => Ok(shown(options.choose(tables, now).as_ref())),
        "settle" => {
            let mut text = String::new();
            for _ in 0..ROUNDS_MAX {
                let choice = options.choose(tables, now);
                text += &shown(choice.as_ref());
                let Some(choice) = choice else { return Ok(text) };
                carry_out(&choice, tables, now);
            }
            Err(format!("no end after {ROUNDS_MAX} compactions"))
        }
        other => Err(format!("no directive {other}")),
    }
}

fn shown(choice: Option<&Choice>) -> String {
    let Some(choice) = choice else { return "nothing\n".to_owned() };
    let inputs: Vec<String> = choice.inputs.iter().map(u64::to_string).collect();
    let mut text = format!("{} -> level {}", inputs.join(" "), choice.output_level);
    if let Some(bytes) = choice.max_output_bytes {
        let _ = write!(text, ", tables of {} MiB", bytes >> 20);
    }
    text + "\n"
}

/// One output, or several of the greatest size with the keys shared out among them.
fn carry_out(choice: &Choice, tables: &mut Vec<TableSummary>, now: u32) {
    let next = tables.iter().map(|table| table.generation).max().unwrap_or(0) + 1;
    let inputs: Vec<TableSummary> =
        tables.extract_if(.., |table| choice.inputs.contains(&table.generation)).collect();
    let total: u64 = inputs.iter().map(|table| table.size_bytes).sum();
    let first = inputs.iter().map(|table| table.first_key[0]).min().unwrap();
    let last = inputs.iter().map(|table| table.last_key[0]).max().unwrap();
    let count = total.div_ceil(choice.max_output_bytes.unwrap_or(total).max(1)).max(1);
    for index in 0..count {
        let key = |index: u64| first + (u64::from(last - first) * index / count) as u8;
        tables.push(TableSummary {
            generation: next + index,
            size_bytes: total / count,
            min_timestamp: inputs.iter().map(|table| table.min_timestamp).min().unwrap(),
            max_timestamp: inputs.iter().map(|table| table.max_timestamp).max().unwrap(),
            first_key: vec![key(index) + u8::from(index > 0)],
            last_key: vec![key(index + 1)],
            level: choice.output_level,
            created_seconds: now,
            droppable_ratio: 0.0,
        });
    }
}

fn table(line: &str) -> Result<TableSummary, String> {
    let mut words = line.split_whitespace();
    let mut table = TableSummary {
        generation: number(words.next().unwrap_or_default())?,
        size_bytes: 1 << 20,
        first_key: vec![b'a'],
        last_key: vec![b'z'],
        ..TableSummary::default()
    };
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("no value: {word}"))?;
        let range = || value.split_once('-').ok_or_else(|| format!("no range: {word}"));
        match name {
            "size" => table.size_bytes = (number::<f64>(value)? * f64::from(1 << 20)) as u64,
            "level" => table.level = number(value)?,
            "created" => table.created_seconds = number(value)?,
            "droppable" => table.droppable_ratio = number(value)?,
            "keys" => (table.first_key, table.last_key) = (range()?.0.into(), range()?.1.into()),
            "times" => {
                let (first, last): (i64, i64) = (number(range()?.0)?, number(range()?.1)?);
                (table.min_timestamp, table.max_timestamp) = (first * 1_000_000, last * 1_000_000);
            }
            other => return Err(format!("no property {other}")),
        }
    }
    Ok(table)
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("no number: {text}"))
}
