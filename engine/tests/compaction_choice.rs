//! What compaction strategies choose, as text: tables, options, and the choice below them.
//!
//! `REWRITE=1 cargo test -p helenus-engine --test compaction_choice` writes the choices into the files; read what has changed
//! before you keep it. The format is that of the crate `datadriven`. Directives:
//!
//! * `tables`: the tables that there are from here on, a line each: a generation, then `size=MIB`, `level=N`, `keys=FIRST-LAST`
//!   (one letter each, from one end of the token space to the other; a to z unless said), `times=FIRST-LAST` (seconds),
//!   `created=SECONDS`, `droppable=SHARE`, `purgeable=SECONDS` (when all of it may be purged), `holds=FIRST-LAST` (numbers of the
//!   rows in it), `rows=N`, `tombstones=N`, `busy`.
//! * `choose now=SECONDS memtable=SECONDS flush=MIB once`: options as in `WITH compaction`, a `name: value` a line. It shows the
//!   inputs in their order, and where the output goes. `memtable`: the oldest timestamp in memory; `flush`: the usual size of a
//!   flush; `once`: rows are written once and removed once.
//! * `all`: the merge of all tables that an operator asks for.
//! * `settle`, with the same arguments: the same, and the choice is carried out as if nothing were merged away, until nothing is
//!   chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use datadriven::TestCase;
use helenus_engine::compaction::{
    Choice, CompactionOptions, KeySample, Merge, Situation, Split, TableSummary,
};
use helenus_engine::io::SplitMix64;

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
    let mut argument = |name: &str| -> Result<Option<u64>, String> {
        case.try_take_arg(name).map_err(|error| error.to_string())
    };
    let now = argument("now")?.unwrap_or(0) as u32;
    let memtable_min_timestamp = argument("memtable")?.map(|seconds| seconds as i64 * 1_000_000);
    let flush_bytes = argument("flush")?.unwrap_or(0) << 20;
    let writes_once = case.take_flag("once").map_err(|error| error.to_string())?;
    let base = Situation {
        tables: &[],
        now_seconds: now,
        memtable_min_timestamp,
        flush_bytes,
        seeks_expired: true,
        writes_once,
    };
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
        "choose" => Ok(shown(options.choose(&Situation { tables: tables.as_slice(), ..base }).as_ref())),
        "all" => Ok(shown(options.choose_all(tables).map(Choice::Merge).as_ref())),
        "settle" => {
            let mut text = String::new();
            for _ in 0..ROUNDS_MAX {
                let choice = options.choose(&Situation { tables: tables.as_slice(), ..base });
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
    let inputs: Vec<String> = choice.inputs().iter().map(u64::to_string).collect();
    let inputs = inputs.join(" ");
    match choice {
        Choice::Drop { .. } => format!("drop {inputs}\n"),
        Choice::Move { level, .. } => format!("move {inputs} -> level {level}\n"),
        Choice::Merge(Merge { output_level, split, .. }) => {
            let mut text = format!("{inputs} -> level {output_level}");
            let _ = match split {
                Split::Never => Ok(()),
                Split::Bytes(bytes) => write!(text, ", tables of {} MiB", bytes >> 20),
                Split::Parts(parts) => write!(text, ", {parts} parts"),
            };
            text + "\n"
        }
    }
}

fn carry_out(choice: &Choice, tables: &mut Vec<TableSummary>, now: u32) {
    match choice {
        Choice::Drop { inputs } => tables.retain(|table| !inputs.contains(&table.generation)),
        Choice::Move { input, level } => {
            tables.iter_mut().find(|table| table.generation == *input).unwrap().level = *level;
        }
        Choice::Merge(merge) => carry_out_merge(merge, tables, now),
    }
}

/// One output, or several with the keys shared out among them.
fn carry_out_merge(merge: &Merge, tables: &mut Vec<TableSummary>, now: u32) {
    let next = tables.iter().map(|table| table.generation).max().unwrap_or(0) + 1;
    let inputs: Vec<TableSummary> =
        tables.extract_if(.., |table| merge.inputs.contains(&table.generation)).collect();
    let total: u64 = inputs.iter().map(|table| table.size_bytes).sum();
    let first = inputs.iter().map(|table| table.first_key[0]).min().unwrap();
    let last = inputs.iter().map(|table| table.last_key[0]).max().unwrap();
    let mut ranges = Vec::new();
    let key = |part: u64, parts: u64, from: u8, to: u8| from + (u64::from(to - from) * part / parts) as u8;
    match merge.split {
        Split::Never => ranges.push((first, last)),
        Split::Bytes(bytes) => {
            let count = total.div_ceil(bytes.max(1)).max(1);
            ranges.extend((0..count).map(|part| {
                let begin = key(part, count, first, last) + u8::from(part > 0);
                (begin, key(part + 1, count, first, last))
            }));
        }
        Split::Parts(parts) => {
            let parts = u64::from(parts);
            let bounds = (0..parts).map(|part| (part * 256 / parts, (part + 1) * 256 / parts - 1));
            let within = bounds.map(|(begin, end)| (first.max(begin as u8), last.min(end as u8)));
            ranges.extend(within.filter(|(begin, end)| begin <= end));
        }
    }
    let count = ranges.len() as u64;
    for (index, (first, last)) in ranges.into_iter().enumerate() {
        tables.push(TableSummary {
            generation: next + index as u64,
            size_bytes: total / count,
            min_timestamp: inputs.iter().map(|table| table.min_timestamp).min().unwrap(),
            max_timestamp: inputs.iter().map(|table| table.max_timestamp).max().unwrap(),
            first_key: vec![first],
            last_key: vec![last],
            level: merge.output_level,
            created_seconds: now,
            rows: inputs.iter().map(|table| table.rows).sum::<u64>() / count,
            ..TableSummary::default()
        });
    }
}

/// The key of a letter: the letters are spread over the token space.
fn key_of(letter: &str) -> Vec<u8> {
    let number = u32::from(letter.as_bytes()[0] - b'a');
    vec![(number * 255 / 25) as u8]
}

fn table(line: &str) -> Result<TableSummary, String> {
    let mut words = line.split_whitespace();
    let mut table = TableSummary {
        generation: number(words.next().unwrap_or_default())?,
        size_bytes: 1 << 20,
        first_key: key_of("a"),
        last_key: key_of("z"),
        ..TableSummary::default()
    };
    for word in words {
        if word == "busy" {
            table.is_busy = true;
            continue;
        }
        let (name, value) = word.split_once('=').ok_or_else(|| format!("no value: {word}"))?;
        let range = || value.split_once('-').ok_or_else(|| format!("no range: {word}"));
        match name {
            "size" => table.size_bytes = (number::<f64>(value)? * f64::from(1 << 20)) as u64,
            "level" => table.level = number(value)?,
            "created" => table.created_seconds = number(value)?,
            "droppable" => table.droppable_ratio = number(value)?,
            "purgeable" => table.purgeable_from_seconds = Some(number(value)?),
            "rows" => table.rows = number(value)?,
            "tombstones" => table.tombstones = number(value)?,
            "holds" => {
                let rows = number::<u64>(range()?.0)?..number(range()?.1)?;
                let hashes = rows.map(|row| SplitMix64::new(row).next_u64()).collect();
                table.sample = Some(Arc::new(KeySample::of(hashes)));
            }
            "keys" => (table.first_key, table.last_key) = (key_of(range()?.0), key_of(range()?.1)),
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
