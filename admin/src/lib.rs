//! `helenus admin`: an operator's commands, executed by a running node over its Unix socket or its HTTP port.
//!
//! Prints tables for people, or with `--json` the node's answer. The exit status is 0 on success. A node that does
//! not answer in time is an error: see `http::call`. `helenus nodetool` makes the same requests, and takes and prints what
//! Cassandra's nodetool does: see `nodetool`.

mod activity;
mod ask;
mod certificates;
mod command;
pub mod denylist;
pub mod encryption_keys;
pub mod feeds;
mod guardrails;
mod http;
mod login;
mod long_options;
mod members;
mod nodetool;
mod password;
mod place;
mod repair;
pub mod reports;
mod request;
mod request_logs;
mod settings;
pub mod socket;
mod tables;
mod text;
pub mod top_partitions;
mod uploads;
mod view_builds;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use self::ask::{Ask, AskError, Node};
use self::certificates::CertificatesError;
pub use self::command::AdminArguments;
use self::command::{AdminCommand, Command};
use self::http::CallError;
use self::login::LoginError;
pub use self::login::PASSWORD_FILE_VARIABLE;
pub use self::long_options::with_long_options;
pub use self::nodetool::{NodetoolArguments, nodetool_main};
pub use self::password::read_password;
use self::password::{Password, PasswordError};
use self::place::Place;
pub use self::place::URL_VARIABLE;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Certificates(#[from] CertificatesError),
    #[error("the node's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("a superuser is made over the node's Unix socket only: name it with --socket or --data-dir")]
    SocketOnly,
}

/// Executes a command and prints its result.
pub fn main_with_args(arguments: &AdminArguments) -> ExitCode {
    match run(arguments) {
        Ok(status) => status,
        Err(error) => {
            // If it cannot be written, the exit status still shows the error.
            let _ = writeln!(std::io::stderr(), "helenus admin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &AdminArguments) -> Result<ExitCode, CommandError> {
    let command = match &arguments.command {
        Command::OfNode(command) => command,
        Command::Certificates(command) => {
            std::io::stdout().write_all(command.carry_out()?.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let named = arguments.url.clone().map(Place::Url).or_else(|| arguments.place.named());
    let mut place = named.unwrap_or_else(|| Place::unnamed(|name| std::env::var_os(name)));
    let mut password = None;
    if let AdminCommand::CreateSuperuser { name, .. } = command {
        place = place.socket().ok_or(CommandError::SocketOnly)?;
        password = Some(Password::of_standard_input(name)?);
    }
    let (place, login) = arguments.login.at(place, |name| std::env::var_os(name))?;
    let node = Node { place, login, password, timeout: arguments.timeout.map(Duration::from_secs) };
    let (answer, mut status) = match node.ask(command) {
        // This is the requested answer, and the exit status shows which one it is.
        Err(AskError::Call(CallError::NotServing { answer, .. })) if arguments.json => {
            (answer, ExitCode::FAILURE)
        }
        asked => (asked?, ExitCode::SUCCESS),
    };
    if command.has_failed(&answer)? {
        status = ExitCode::FAILURE;
    }
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&answer)?)
    } else {
        command.text(answer)?
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(status)
}
