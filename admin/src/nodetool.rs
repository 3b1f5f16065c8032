//! `helenus nodetool`: the verbs, options and texts of Cassandra's nodetool, for scripts that use it.
//!
//! The requests are those of `helenus admin`; here are only other words for them and other texts of their answers. What cannot be
//! obeyed is refused, nothing is ignored: see `absent`. Results go to standard output, reasons to standard error; the exit status
//! is nodetool's: see `error`.

mod absent;
mod act;
mod activity;
mod cluster;
mod error;
mod format;
mod show;
mod storage;
#[cfg(test)]
mod tests;
mod top_partitions;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use self::act::Act;
use self::error::NodetoolError;
use self::show::Show;
use crate::ask::{Ask, Node};
use crate::login::Login;
use crate::long_options::lengthen;
use crate::place::{DEFAULT_PORT, Place, PlaceArguments};

/// The arguments of `helenus nodetool`. They are read by [`nodetool_main`]: nodetool has its own options, `-h` for a host among them.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct NodetoolArguments {
    /// `[-h HOST] [-p PORT] VERB …`; `help` lists the verbs, `help VERB` explains one.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// What the words say.
#[derive(Debug, Parser)]
#[command(name = "helenus nodetool", bin_name = "helenus nodetool", disable_help_flag = true)]
#[command(about = "Administers a node with the verbs of Cassandra's nodetool")]
struct Line {
    /// The node's host or address. Default: that of `HELENUS_ADMIN_URL`; without it, and without a port, the node is asked over the Unix
    /// socket in its data directory, or at 127.0.0.1 if nobody listens there.
    #[arg(short = 'h', long)]
    host: Option<String>,
    /// The node's HTTP port. Default: 9180.
    #[arg(short = 'p', long)]
    port: Option<u16>,
    /// The node's Unix socket.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    socket: Option<PathBuf>,
    /// The node's data directory, in which its Unix socket is.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["host", "port", "socket"])]
    data_dir: Option<PathBuf>,
    /// Shows addresses with their ports. Also -pp.
    #[arg(long)]
    print_port: bool,
    #[arg(short = 'u', long, hide = true)]
    username: Option<String>,
    #[arg(long, hide = true)]
    password: Option<String>,
    #[arg(long, hide = true)]
    password_file: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(flatten)]
    Show(Show),
    #[command(flatten)]
    Act(Act),
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// Options with one dash and several letters, and the long ones that they become.
const LONG_OPTIONS: [(&str, &str); 18] = [
    ("-pp", "--print-port"),
    ("-pw", "--password"),
    ("-pwf", "--password-file"),
    ("-cf", "--table"),
    ("-kt", "--kt-list"),
    ("-kc", "--kt-list"),
    ("-nt", "--no-ttl"),
    ("-ks", "--keyspace"),
    ("-ns", "--no-snapshot"),
    ("-pr", "--partitioner-range"),
    ("-dc", "--in-dc"),
    ("-local", "--in-local-dc"),
    ("-st", "--start-token"),
    ("-et", "--end-token"),
    ("-full", "--full"),
    ("-force", "--force"),
    ("-iuk", "--ignore-unreplicated-keyspaces"),
    ("-skip-paxos", "--skip-paxos"),
];

/// The place of the verb: behind the options that are before it, and their values.
fn verb_index(words: &[OsString]) -> usize {
    const WITH_VALUE: [&str; 12] = [
        "-h",
        "--host",
        "-p",
        "--port",
        "-u",
        "--username",
        "-pw",
        "--password",
        "-pwf",
        "--password-file",
        "--socket",
        "--data-dir",
    ];
    let mut index = 0;
    while let Some(word) = words.get(index).map(|word| word.to_string_lossy()) {
        if !word.starts_with('-') {
            break;
        }
        index += if WITH_VALUE.contains(&&*word) { 2 } else { 1 };
    }
    index
}

/// Why there is nothing to carry out.
enum NoLine {
    /// The words are wrong, or ask for help.
    Words(clap::Error),
    Refused(NodetoolError),
}

fn read(words: &[OsString]) -> Result<Line, NoLine> {
    let mut words = words.to_vec();
    let verb = words.get(verb_index(&words)).cloned();
    if words.iter().take_while(|word| *word != "--").any(|word| word == "--help") {
        words = std::iter::once("help".into()).chain(verb).collect();
    }
    let index = verb_index(&words);
    if let Some(verb) = words.get(index) {
        let verb = verb.to_string_lossy().into_owned();
        absent::options(&verb, &words[index + 1..]).map_err(NoLine::Refused)?;
    } else {
        words.push("help".into());
    }
    lengthen(&mut words, &LONG_OPTIONS);
    // A `-h` behind the verb is for a host, in its wrong place, and no call for help.
    let command = Line::command().mut_subcommands(|verb| verb.disable_help_flag(true));
    let words = std::iter::once(OsString::from("helenus nodetool")).chain(words);
    let matches = command.try_get_matches_from(words).map_err(NoLine::Words)?;
    let line = Line::from_arg_matches(&matches).map_err(NoLine::Words)?;
    if line.username.is_some() || line.password.is_some() || line.password_file.is_some() {
        return Err(NoLine::Refused(NodetoolError::usage(
            "-u, -pw and -pwf cannot be obeyed: over the Unix socket of a node nobody logs in, and at its port `helenus admin --user` does",
        )));
    }
    Ok(line)
}

impl Line {
    /// Where the node is asked.
    fn place(&self, variable: impl Fn(&str) -> Option<OsString>) -> Place {
        let (socket, data_dir) = (self.socket.clone(), self.data_dir.clone());
        if let Some(named) = (PlaceArguments { http_port: None, socket, data_dir }).named() {
            return named;
        }
        if self.host.is_none() && self.port.is_none() {
            return Place::unnamed(variable);
        }
        let host = self.host.as_deref().unwrap_or("127.0.0.1");
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Place::Url(format!("http://{host}:{}", self.port.unwrap_or(DEFAULT_PORT)))
    }

    /// Carries the verb out; returns what is printed.
    fn execute(&self, node: &dyn Ask) -> Result<String, NodetoolError> {
        match &self.verb {
            Verb::Show(show) => show.text(node, self.print_port),
            Verb::Act(act) => act.execute(node, self.print_port),
            Verb::Other(words) => {
                Err(absent::verb(&words.first().map(|word| word.to_string_lossy()).unwrap_or_default()))
            }
        }
    }
}

/// Executes a verb and prints its result.
pub fn nodetool_main(arguments: &NodetoolArguments) -> ExitCode {
    let executed = match read(&arguments.words) {
        Ok(line) => {
            let place = line.place(|name| std::env::var_os(name));
            let node = Node { place, login: Login::default(), password: None, timeout: None };
            line.execute(&node).and_then(|text| Ok(std::io::stdout().write_all(text.as_bytes())?))
        }
        Err(NoLine::Words(error)) => {
            // If it cannot be written, the exit status still shows the error.
            let _ = error.print();
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if is_help { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(NoLine::Refused(error)) => Err(error),
    };
    match executed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ NodetoolError::Unfinished(_)) => {
            // If it cannot be written, the exit status still shows it.
            let _ = write!(std::io::stdout(), "{error}");
            ExitCode::from(error.status())
        }
        Err(error) => {
            let _ = match error.status() {
                1 => writeln!(std::io::stderr(), "nodetool: {error}"),
                _ => writeln!(std::io::stderr(), "error: {error}"),
            };
            ExitCode::from(error.status())
        }
    }
}
