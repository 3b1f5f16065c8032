//! The interactive CQL shell: `helenus shell [host]`. It speaks to Helenus and to Cassandra alike, through the
//! `scylla` driver, and prints what `cqlsh` prints.
//!
//! * [`args`]: the command line
//! * [`splitter`]: input text into statements; [`token`], [`command`]: the shell's own commands
//! * [`target`], [`relay`], [`contact_point`]: the one node for everything; [`connection`]: statements to it and pages of rows back
//! * [`mod@format`], [`json`], [`table`], [`describe`], [`trace`]: what is printed
//! * [`copy`], [`copy_from`], [`copy_to`], [`csv`], [`field`]: CSV import and export
//! * [`tail`]: the changes of a table as they come
//! * [`pager`], [`interrupt`]: stopping between pages, and Ctrl-C
//! * [`shell`]: the state that ties them together, and what statements do to it
//! * [`interactive`], [`completion`]: the line editor in front of it
//!
//! The exit code is 0 if everything worked, 1 if a statement failed, 2 if there was no connection, 130 after Ctrl-C between
//! two pages.

mod args;
mod command;
mod completion;
mod connection;
mod contact_point;
mod copy;
mod copy_from;
mod copy_to;
mod csv;
mod describe;
mod error;
mod field;
mod format;
mod help;
mod interactive;
mod interrupt;
mod json;
mod output;
mod pager;
mod relay;
mod shell;
pub mod splitter;
mod table;
mod tail;
mod target;
mod token;
mod trace;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
};

pub use args::Args;
pub use interactive::HISTORY_VARIABLE;

use error::ShellError;
use shell::{ExitStatus, Shell};

/// Runs the shell until its input ends. Starts a runtime of its own, so it must not be called from within one.
pub fn main_with_args(args: &Args) -> ExitCode {
    match run(args) {
        Ok(exit_status) => exit_status.into(),
        Err(error) => {
            // If the message cannot be written, the exit status still shows the error.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Runs the shell as the command line says.
fn run(args: &Args) -> Result<ExitStatus, ShellError> {
    let mut shell = Shell::open(args)?;
    let is_interactive = args.execute.is_none() && args.file.is_none() && io::stdin().is_terminal();
    let done = if let Some(statements) = &args.execute {
        shell.run_script(None, statements).map(|_| ())
    } else if let Some(path) = &args.file {
        shell.run_file(path).map(|_| ())
    } else if is_interactive {
        interactive::run(&mut shell)
    } else {
        shell.run_standard_input().map(|_| ())
    };
    // A failed statement is no failure of an interactive shell.
    let exit_status = if is_interactive { ExitStatus::Success } else { shell.exit_status() };
    match done {
        Ok(()) => Ok(exit_status),
        Err(error) if error.is_broken_pipe() => Ok(exit_status),
        Err(error) => Err(error),
    }
}
