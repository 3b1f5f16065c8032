//! `helenus fql dump` and `helenus replay`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use cql_lite::frame::{BatchQuery, Consistency, Request, Value};
use helenus_tls::error::TlsError;
use serde_json::json;
use thiserror::Error;

use crate::reader::{Item, LogReader, ReadError};
use crate::record::{Record, RecordError, RecordedRequest};
use crate::replay::{self, ReplayError, Summary, outcome_text};
use crate::target::{Target, TlsArguments, address};

/// The arguments of `helenus fql`.
#[derive(Debug, Args)]
pub struct FqlArguments {
    #[command(subcommand)]
    command: FqlCommand,
}

#[derive(Debug, Subcommand)]
enum FqlCommand {
    /// Prints the recorded requests, a line of JSON for each.
    Dump {
        /// The directory of a full query log, or one of its files.
        path: PathBuf,
        /// Without the values that clients have bound.
        #[arg(long)]
        without_values: bool,
    },
}

/// The arguments of `helenus replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The directory of a full query log, or one of its files.
    path: PathBuf,
    /// The node that is asked: HOST or HOST:PORT.
    #[arg(long)]
    target: String,
    /// Connections that the recorded clients share.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// The role that the connections log in as.
    #[arg(long, env = "HELENUS_REPLAY_USER")]
    user: Option<String>,
    /// Its password.
    #[arg(long, env = "HELENUS_REPLAY_PASSWORD", hide_env_values = true, requires = "user")]
    password: Option<String>,
    /// The file with its password. Without it and --password one line of standard input is the password.
    #[arg(long, value_name = "FILE", requires = "user", conflicts_with = "password")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
}

/// Reads the password of a role from a file, or from standard input.
pub type ReadPassword = dyn Fn(&str, Option<&Path>) -> io::Result<String>;

/// The reason why a command fails.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Password(io::Error),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Executes `helenus fql`.
pub fn fql_main(arguments: &FqlArguments) -> ExitCode {
    let FqlCommand::Dump { path, without_values } = &arguments.command;
    match dump(path, !without_values, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail("fql", &error),
    }
}

/// Executes `helenus replay`: exit status 1 if something ended otherwise than recorded.
pub fn replay_main(arguments: &ReplayArguments, read_password: &ReadPassword) -> ExitCode {
    match run_replay(arguments, read_password) {
        Ok(summary) if summary.different == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail("replay", &error),
    }
}

fn fail(command: &str, error: &CommandError) -> ExitCode {
    // If it cannot be written, the exit status still shows the error.
    let _ = writeln!(io::stderr(), "helenus {command}: {error}");
    ExitCode::FAILURE
}

fn run_replay(arguments: &ReplayArguments, read_password: &ReadPassword) -> Result<Summary, CommandError> {
    let credentials = match (&arguments.user, &arguments.password) {
        (Some(user), Some(password)) => Some((user.clone(), password.clone())),
        (Some(user), None) => {
            let password = read_password(user, arguments.password_file.as_deref());
            Some((user.clone(), password.map_err(CommandError::Password)?))
        }
        (None, _) => None,
    };
    let target = Target {
        address: address(&arguments.target),
        credentials,
        connections: usize::from(arguments.connections),
        tls: arguments.tls.load()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tell = |line: &str| {
        // A difference that cannot be told is counted all the same.
        let _ = writeln!(io::stdout(), "{line}");
    };
    let replaying = replay::replay(&arguments.path, &target, &mut tell);
    let summary = tokio::task::LocalSet::new().block_on(&runtime, replaying)?;
    io::stdout().write_all(summary_text(&summary).as_bytes())?;
    Ok(summary)
}

fn summary_text(summary: &Summary) -> String {
    let mut text = format!("{} as recorded, {} different\n", summary.same, summary.different);
    for (count, what) in [
        (summary.unauthorized, "of these were refused: the role has no permission for them"),
        (summary.skipped_roles, "statements about roles were left out: the log has no passwords"),
        (summary.skipped_pages, "pages behind the first were left out"),
        (summary.missing, "requests are missing in the log"),
        (summary.cut_off, "files are cut off at their end"),
    ] {
        if count > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{count} {what}");
        }
    }
    text
}

fn dump(path: &Path, with_values: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut reader = LogReader::open(path)?;
    while let Some((place, item)) = reader.read()? {
        let mut line = match item {
            Item::CutOff => json!({ "cut_off": true }),
            Item::Record(Record::Gap(missing)) => json!({ "missing": missing }),
            Item::Record(Record::Request(request)) => described(&request, with_values)?,
        };
        if let Some(object) = line.as_object_mut() {
            object.insert("file".to_owned(), json!(place.path.to_string_lossy()));
            object.insert("offset".to_owned(), json!(place.offset));
        }
        writeln!(output, "{line}")?;
    }
    Ok(())
}

fn shown(values: &[Value<'_>]) -> Vec<serde_json::Value> {
    let one = |value: &Value<'_>| match value {
        Value::Null => json!(null),
        Value::Unset => json!("unset"),
        Value::Bytes(bytes) => {
            json!(bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")))
        }
    };
    values.iter().map(one).collect()
}

/// A request as JSON.
fn described(recorded: &RecordedRequest, with_values: bool) -> Result<serde_json::Value, RecordError> {
    let request = recorded.request()?;
    let mut object = json!({
        "time_micros": recorded.started_micros,
        "duration_micros": recorded.duration_micros,
        "source": recorded.source.to_string(),
        "user": recorded.user,
        "protocol_version": recorded.version,
        "outcome": outcome_text(recorded.outcome),
    });
    let parts = match &request {
        Request::Query(query) => {
            let parameters = &query.parameters;
            let mut parts = json!({
                "kind": "QUERY",
                "statement": query.statement,
                "keyspace": parameters.keyspace,
                "consistency": parameters.consistency.name(),
                "serial_consistency": parameters.serial_consistency.map(Consistency::name),
                "timestamp_micros": parameters.timestamp_us,
                "page_size": parameters.page_size,
                "is_later_page": parameters.paging_state.is_some(),
            });
            if with_values {
                parts["values"] = json!(shown(&parameters.values));
                parts["names"] = json!(parameters.names);
            }
            parts
        }
        Request::Batch(batch) => {
            let statement = |(query, values): (BatchQuery<'_>, &[Value<'_>])| {
                let BatchQuery::Text(text) = query else { return json!({}) };
                let mut statement = json!({ "statement": text });
                if with_values {
                    statement["values"] = json!(shown(values));
                }
                statement
            };
            json!({
                "kind": "BATCH",
                "batch": format!("{:?}", batch.kind).to_uppercase(),
                "statements": batch.statements().map(statement).collect::<Vec<_>>(),
                "keyspace": batch.keyspace,
                "consistency": batch.consistency.name(),
                "serial_consistency": batch.serial_consistency.map(Consistency::name),
                "timestamp_micros": batch.timestamp_us,
            })
        }
        _ => json!({}),
    };
    if let (Some(object), Some(parts)) = (object.as_object_mut(), parts.as_object()) {
        object.extend(parts.clone());
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HEAD;
    use crate::record::samples::request;

    #[test]
    fn a_dump_has_a_line_for_each_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("queries-0000000001.fql");
        let records = [Record::Request(request(5, 4711, "SELECT v FROM t WHERE k = ?")), Record::Gap(2)];
        let bytes: Vec<u8> = HEAD.iter().copied().chain(records.iter().flat_map(Record::encode)).collect();
        std::fs::write(&path, &bytes[..]).unwrap();
        let mut output = Vec::new();
        dump(directory.path(), true, &mut output).unwrap();
        let lines: Vec<serde_json::Value> = output
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        assert_eq!(lines[0]["statement"], "SELECT v FROM t WHERE k = ?");
        assert_eq!(lines[0]["values"], json!(["0x00000007"]));
        assert_eq!((&lines[0]["consistency"], &lines[0]["keyspace"]), (&json!("QUORUM"), &json!("ks")));
        assert_eq!((&lines[0]["outcome"], &lines[0]["source"]), (&json!("3 rows"), &json!("10.0.0.7:4711")));
        assert_eq!(lines[1]["missing"], 2);
        let mut output = Vec::new();
        dump(&path, false, &mut output).unwrap();
        assert!(!String::from_utf8(output).unwrap().contains("values"));
    }

    #[test]
    fn a_summary_names_what_was_left_out() {
        let summary =
            Summary { same: 3, different: 4, unauthorized: 1, skipped_pages: 2, ..Summary::default() };
        assert_eq!(
            summary_text(&summary),
            "3 as recorded, 4 different\n1 of these were refused: the role has no permission for them\n\
             2 pages behind the first were left out\n"
        );
    }
}
