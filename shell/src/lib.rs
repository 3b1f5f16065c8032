//! The interactive CQL shell: `helenus shell [host]`. It speaks to Helenus and to Cassandra alike, through the
//! `scylla` driver, and prints what `cqlsh` prints.
//!
//! * [`args`]: the command line
//! * [`splitter`]: input text into statements; [`command`]: the shell's own commands
//! * [`connection`]: statements to the server and pages of rows back; [`contact_point`]: which node they go to
//! * [`mod@format`], [`json`], [`table`], [`describe`], [`trace`]: what is printed
//! * [`copy`], [`copy_from`], [`copy_to`], [`csv`], [`field`]: CSV import and export
//! * [`interactive`], [`completion`]: the line editor; [`pager`], [`interrupt`]: stopping between pages, and Ctrl-C
//! * [`shell`]: the state that ties them together
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
mod shell;
mod splitter;
mod table;
mod trace;

use std::{io::Write as _, process::ExitCode};

pub use args::Args;
pub use interactive::HISTORY_VARIABLE;

/// Runs the shell until its input ends. Starts a runtime of its own, so it must not be called from within one.
pub fn main_with_args(args: &Args) -> ExitCode {
    match shell::run(args) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            // Who cannot be told learns it from the exit status.
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}
