//! `helenus advise FILE`.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::advice::advise;
use crate::error::AdviseError;
use crate::workload::{FILE_BYTES_MAX, Workload};

/// The arguments of `helenus advise`.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// The schema and the statements of an application, with what is known of its data (docs/costs.md).
    file: PathBuf,
    /// Replicas of each row in keyspaces that the file does not create.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,
    /// Print one document of JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the advice on a file. Exit status 1: it cannot be read or planned.
pub fn run(arguments: &AdviseArguments) -> ExitCode {
    match print(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the message cannot be written, the exit status still shows the error.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn print(arguments: &AdviseArguments) -> Result<(), AdviseError> {
    let workload = Workload::read(&text_of(&arguments.file)?, arguments.replicas)?;
    let report = advise(&workload)?;
    let text = if arguments.json { format!("{:#}\n", report.json()) } else { report.text() };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn text_of(path: &Path) -> Result<String, AdviseError> {
    let failed = |error| AdviseError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {FILE_BYTES_MAX} bytes"),
        )));
    }
    Ok(text)
}
