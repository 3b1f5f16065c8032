//! The state of a shell, and what each statement and command does to it.

use std::{
    fs,
    io::{self, IsTerminal, Read, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use cql_lite::frame::Consistency;

use crate::{
    args::{Args, DEFAULT_CONNECT_TIMEOUT},
    command::{self, Capture, Command, Paging},
    connection::{Connection, Rows, Settings},
    copy::{CopyCommand, CsvLocation, Direction},
    copy_from, copy_to, describe,
    error::{EXIT_STATEMENT_FAILED, ShellError},
    help, json,
    output::{Layout, Output},
    pager, splitter, table,
    tail::{self, TailCommand},
    target::{Target, TlsFiles, format_address},
    trace,
};

/// Rows a page to begin with, as in cqlsh.
const PAGE_ROWS: i32 = 100;
/// Rows asked for at a time when results do not stop after a page.
const UNPAGED_PAGE_ROWS: i32 = 5000;
/// How deep SOURCE may be nested.
const SOURCE_DEPTH_MAX: usize = 16;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Exit,
}

/// The exit status of the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Success,
    /// A statement failed.
    Failure,
}

impl From<ExitStatus> for ExitCode {
    fn from(exit_status: ExitStatus) -> Self {
        match exit_status {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::Failure => Self::from(EXIT_STATEMENT_FAILED),
        }
    }
}

/// A shell with its connection and settings.
pub struct Shell {
    connection: Connection,
    settings: Settings,
    output: Output,
    is_paging: bool,
    layout: Layout,
    /// Standard input holds the statements, so it cannot hold the data of COPY.
    is_piped: bool,
    /// Files that SOURCE is reading.
    source_depth: usize,
    exit_status: ExitStatus,
}

fn target(args: &Args) -> Result<Target, ShellError> {
    let password = match (&args.username, &args.password) {
        (Some(username), None) if io::stdin().is_terminal() => Some(ask_password(username)?),
        (_, password) => password.clone(),
    };
    Ok(Target {
        host: args.host.clone(),
        port: args.port,
        username: args.username.clone(),
        password,
        keyspace: args.keyspace.clone(),
        connect_timeout: Duration::from_secs(match args.connect_timeout {
            // A timeout of 0 would make every connection fail.
            0 => DEFAULT_CONNECT_TIMEOUT,
            seconds => seconds,
        }),
        awaits_start: args.connect_timeout > 0,
        request_timeout: Duration::from_secs(args.request_timeout),
        tls: args.authorities.clone().filter(|_| args.ssl).map(|authorities| TlsFiles {
            authorities,
            certificate: args.certificate.clone(),
            key: args.key.clone(),
            checks_name: !args.any_name,
        }),
    })
}

fn ask_password(username: &str) -> Result<String, ShellError> {
    Ok(rpassword::prompt_password(format!("Password of {username}: "))?)
}

impl Shell {
    /// Connects as the command line says.
    pub fn open(args: &Args) -> Result<Self, ShellError> {
        Ok(Self {
            connection: Connection::open(target(args)?)?,
            settings: Settings {
                consistency: Consistency::One,
                serial_consistency: Consistency::Serial,
                tracing: false,
                receipt: false,
                page_rows: PAGE_ROWS,
            },
            output: Output::new(!args.no_color && std::env::var_os("NO_COLOR").is_none()),
            is_paging: true,
            layout: if args.json { Layout::Json } else { Layout::Aligned },
            is_piped: false,
            source_depth: 0,
            exit_status: ExitStatus::Success,
        })
    }

    /// Whether a statement failed so far.
    pub fn exit_status(&self) -> ExitStatus {
        self.exit_status
    }

    /// The connection of the moment.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The prompt without its `>`.
    pub fn prompt(&self) -> String {
        match self.connection.keyspace() {
            Some(keyspace) => format!("helenus:{keyspace}"),
            None => "helenus".to_owned(),
        }
    }

    /// Greets an interactive user with the host and its version.
    pub fn greet(&mut self) -> Result<(), ShellError> {
        self.show_host()?;
        self.show_version()?;
        self.output.line("HELP lists the commands of the shell.")
    }

    /// Runs the statements of a text. A statement that fails is reported (with its place in `file`), and the next
    /// one is run; only a lost connection or output, or Ctrl-C, ends the run.
    pub fn run_script(&mut self, file: Option<&Path>, text: &str) -> Result<Flow, ShellError> {
        let split = splitter::split(text);
        let mut pieces = split.pieces;
        if let Some(rest) = split.rest {
            if rest.is_open {
                let message = "Incomplete statement at end of input".to_owned();
                self.report(file, rest.piece.line, &ShellError::Usage(message));
            } else {
                pieces.push(rest.piece);
            }
        }
        for piece in pieces {
            match self.run_statement(&piece.text) {
                Ok(Flow::Continue) => {}
                Ok(Flow::Exit) => return Ok(Flow::Exit),
                Err(
                    error @ (ShellError::Connection(_) | ShellError::Output(_) | ShellError::Interrupted),
                ) => {
                    return Err(error);
                }
                Err(error) => self.report(file, piece.line, &error),
            }
        }
        Ok(Flow::Continue)
    }

    /// Runs the statements of a file.
    pub fn run_file(&mut self, path: &Path) -> Result<Flow, ShellError> {
        let text =
            fs::read_to_string(path).map_err(|source| ShellError::File { path: path.to_owned(), source })?;
        self.run_script(Some(path), &text)
    }

    /// Runs the statements that standard input holds.
    pub fn run_standard_input(&mut self) -> Result<Flow, ShellError> {
        self.is_piped = true;
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        self.run_script(Some(Path::new("<stdin>")), &text)
    }

    fn report(&mut self, file: Option<&Path>, line: usize, error: &ShellError) {
        self.exit_status = ExitStatus::Failure;
        match file {
            Some(file) => eprintln!("{}:{line}: {error}", file.display()),
            None => eprintln!("{error}"),
        }
    }

    fn run_statement(&mut self, text: &str) -> Result<Flow, ShellError> {
        let text = splitter::trim_start(text);
        match command::parse(text)? {
            Command::Cql => self.run_cql(text)?,
            Command::Describe => self.describe(text)?,
            Command::Expand(_) if self.layout == Layout::Json => {
                return Err(ShellError::Usage("EXPAND has no meaning for JSON".to_owned()));
            }
            Command::Expand(None) if self.layout == Layout::Expanded => {
                self.output.line("Expanded output is currently enabled. Use EXPAND OFF to disable")?;
            }
            Command::Expand(None) => {
                self.output.line("Expanded output is currently disabled. Use EXPAND ON to enable")?;
            }
            Command::Expand(Some(true)) => {
                self.layout = Layout::Expanded;
                self.output.line("Now Expanded output is enabled")?;
            }
            Command::Expand(Some(false)) => {
                self.layout = Layout::Aligned;
                self.output.line("Disabled Expanded output.")?;
            }
            Command::Tracing(None) => self.print_state("Tracing", "TRACING", self.settings.tracing)?,
            Command::Tracing(Some(on)) => {
                self.settings.tracing = on;
                self.output.line(if on { "Now Tracing is enabled" } else { "Disabled Tracing." })?;
            }
            Command::Receipt(None) => self.print_state("Receipt", "RECEIPT", self.settings.receipt)?,
            Command::Receipt(Some(on)) => {
                self.settings.receipt = on;
                self.output.line(if on { "Now Receipt is enabled" } else { "Disabled Receipt." })?;
            }
            Command::Paging(setting) => self.set_paging(setting)?,
            Command::Consistency(None) => {
                self.output.line(&format!("Current consistency level is {}.", self.settings.consistency))?;
            }
            Command::Consistency(Some(level)) => {
                self.settings.consistency = level;
                self.output.line(&format!("Consistency level set to {level}."))?;
            }
            Command::SerialConsistency(None) => {
                let level = self.settings.serial_consistency;
                self.output.line(&format!("Current serial consistency level is {level}."))?;
            }
            Command::SerialConsistency(Some(level)) => {
                self.settings.serial_consistency = level;
                self.output.line(&format!("Serial consistency level set to {level}."))?;
            }
            Command::Source(path) => return self.source(&path),
            Command::Capture(setting) => self.capture(setting)?,
            Command::Copy(copy) => self.copy(&copy)?,
            Command::Tail(command) => self.tail(&command)?,
            Command::ShowVersion => self.show_version()?,
            Command::ShowHost => self.show_host()?,
            Command::ShowSession(id) => {
                let wanted = Settings { tracing: true, ..self.settings.clone() };
                trace::print(&self.connection, &mut self.output, id, &wanted)?;
            }
            Command::Login { username, password } => {
                let password = match password {
                    Some(password) => password,
                    None => ask_password(&username)?,
                };
                if self.connection.interrupts().take() {
                    return Err(ShellError::Interrupted);
                }
                self.connection.login(username, password)?;
            }
            Command::Clear if self.output.is_terminal() => {
                print!("\x1b[2J\x1b[H");
                io::stdout().flush()?;
            }
            Command::Clear => {}
            Command::Help(topics) => self.output.lines(&help::lines(&topics))?,
            Command::Exit => return Ok(Flow::Exit),
        }
        Ok(Flow::Continue)
    }

    /// The settings for a statement whose result may stop after each page.
    fn page_settings(&self) -> Settings {
        let page_rows = if self.is_paging { self.settings.page_rows } else { UNPAGED_PAGE_ROWS };
        Settings { page_rows, ..self.settings.clone() }
    }

    fn run_cql(&mut self, text: &str) -> Result<(), ShellError> {
        let settings = self.page_settings();
        let mut answer = self.connection.run(text, &settings, None)?;
        let first_trace = answer.trace_id;
        let mut warnings = std::mem::take(&mut answer.warnings);
        if let Some(mut rows) = answer.rows.take() {
            let mut rows_before = 0;
            self.start_result()?;
            loop {
                self.print_page(&rows, rows_before)?;
                rows_before += rows.rows.len();
                let Some(page) = answer.next_page.take() else { break };
                if self.is_paging && self.output.is_terminal() && !pager::ask_for_more()? {
                    break;
                }
                answer = self.connection.run(text, &settings, Some(page))?;
                warnings.append(&mut answer.warnings);
                rows = answer.rows.take().unwrap_or_default();
            }
            self.end_result(rows_before)?;
        }
        print_warnings(&warnings);
        self.print_trace(first_trace)
    }

    fn start_result(&mut self) -> Result<(), ShellError> {
        if self.layout == Layout::Json { Ok(()) } else { self.output.line("") }
    }

    fn print_page(&mut self, rows: &Rows, rows_before: usize) -> Result<(), ShellError> {
        if self.layout == Layout::Json {
            let lines: Vec<String> = rows.rows.iter().map(|row| json::row(&rows.columns, row)).collect();
            return self.output.lines(&lines);
        }
        if rows.rows.is_empty() && rows_before > 0 {
            return Ok(());
        }
        let in_color = self.output.in_color();
        let is_terminal = self.output.is_terminal();
        if self.layout == Layout::Expanded {
            return self.output.lines(&table::expanded(rows, rows_before, in_color));
        }
        let mut lines = table::aligned(rows, rows_before == 0 || is_terminal, in_color);
        if is_terminal {
            lines.push(String::new());
        }
        self.output.lines(&lines)
    }

    fn end_result(&mut self, row_count: usize) -> Result<(), ShellError> {
        if self.layout == Layout::Json {
            return Ok(());
        }
        if !self.output.is_terminal() {
            self.output.line("")?;
        }
        self.output.lines(&[format!("({row_count} rows)"), String::new()])
    }

    fn print_trace(&mut self, id: Option<uuid::Uuid>) -> Result<(), ShellError> {
        match id {
            Some(id) => trace::print(&self.connection, &mut self.output, id, &self.settings),
            None => Ok(()),
        }
    }

    /// Prints whether something is printed after each statement. `command`: what changes it.
    fn print_state(&mut self, name: &str, command: &str, is_on: bool) -> Result<(), ShellError> {
        let (state, change) =
            if is_on { ("enabled", "OFF to disable") } else { ("disabled", "ON to enable") };
        self.output.line(&format!("{name} is currently {state}. Use {command} {change}"))
    }

    fn describe(&mut self, text: &str) -> Result<(), ShellError> {
        let settings = Settings { consistency: Consistency::LocalOne, ..self.page_settings() };
        let rows = self.connection.run_to_end(text, &settings)?;
        if self.layout == Layout::Json {
            self.print_page(&rows, 0)
        } else {
            self.output.lines(&describe::lines(text, &rows))
        }
    }

    fn set_paging(&mut self, setting: Option<Paging>) -> Result<(), ShellError> {
        match setting {
            None if self.is_paging => {
                self.output.line("Query paging is currently enabled. Use PAGING OFF to disable")?;
                self.output.line(&format!("Page size: {}", self.settings.page_rows))
            }
            None => self.output.line("Query paging is currently disabled. Use PAGING ON to enable"),
            Some(Paging::Off) => {
                self.is_paging = false;
                self.output.line("Disabled Query paging.")
            }
            Some(on) => {
                self.is_paging = true;
                if let Paging::Rows(rows) = on {
                    self.settings.page_rows = rows;
                }
                self.output.line("Now Query paging is enabled")?;
                self.output.line(&format!("Page size: {}", self.settings.page_rows))
            }
        }
    }

    fn source(&mut self, path: &Path) -> Result<Flow, ShellError> {
        if self.source_depth == SOURCE_DEPTH_MAX {
            return Err(ShellError::Usage(format!("SOURCE is nested more than {SOURCE_DEPTH_MAX} deep")));
        }
        self.source_depth += 1;
        let flow = self.run_file(path);
        self.source_depth -= 1;
        flow
    }

    fn capture(&mut self, setting: Option<Capture>) -> Result<(), ShellError> {
        match setting {
            None => match self.output.captured_to() {
                Some(path) => {
                    eprintln!("Currently capturing query output to '{}'.", path.display());
                    Ok(())
                }
                None => self.output.line("Currently not capturing query output."),
            },
            Some(Capture::Off) => {
                self.output.stop_capture();
                Ok(())
            }
            Some(Capture::File(_)) if self.output.captured_to().is_some() => {
                Err(ShellError::Usage("Already capturing output. Use CAPTURE OFF to disable.".to_owned()))
            }
            Some(Capture::File(path)) => {
                self.output.line(&format!("Now capturing query output to '{}'.", path.display()))?;
                self.output.start_capture(&path)
            }
        }
    }

    fn copy(&mut self, copy: &CopyCommand) -> Result<(), ShellError> {
        if self.is_piped && copy.direction == Direction::From && copy.location == CsvLocation::Standard {
            let reason = "COPY FROM STDIN cannot be used in statements from standard input; use -e or -f";
            return Err(ShellError::Usage(reason.to_owned()));
        }
        let summary = match copy.direction {
            Direction::To => copy_to::run(&self.connection, &self.settings, copy),
            Direction::From => copy_from::run(&self.connection, &self.settings, copy),
        }?;
        // Not on standard output, where the rows themselves may be.
        eprintln!("{summary}");
        Ok(())
    }

    fn tail(&mut self, command: &TailCommand) -> Result<(), ShellError> {
        let count = tail::run(&self.connection, &self.settings, &mut self.output, self.layout, command)?;
        if self.layout == Layout::Json {
            return Ok(());
        }
        self.output.lines(&[String::new(), format!("({count} changes)"), String::new()])
    }

    fn show_host(&mut self) -> Result<(), ShellError> {
        let target = self.connection.target();
        let address = format_address(&target.host, target.port);
        let rows = self.read_local("cluster_name")?;
        let cluster = rows.text(0, "cluster_name");
        self.output.line(&format!("Connected to {cluster} at {address}"))
    }

    /// Columns of the description that a node has of itself.
    fn read_local(&self, columns: &str) -> Result<Rows, ShellError> {
        let statement = format!("SELECT {columns} FROM system.local WHERE key = 'local'");
        let settings = Settings { consistency: Consistency::One, ..self.settings.untraced() };
        self.connection.run_to_end(&statement, &settings)
    }

    fn show_version(&mut self) -> Result<(), ShellError> {
        let rows = self.read_local("release_version, cql_version")?;
        self.output.line(&format!(
            "[helenus shell {} | Cassandra {} | CQL spec {} | Native protocol v4]",
            env!("CARGO_PKG_VERSION"),
            rows.text(0, "release_version"),
            rows.text(0, "cql_version"),
        ))
    }
}

fn print_warnings(warnings: &[String]) {
    if !warnings.is_empty() {
        eprintln!("\nWarnings :");
        for warning in warnings {
            eprintln!("{warning}\n");
        }
    }
}
