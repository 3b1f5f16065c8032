//! The `helenus` program: `helenus node` runs a node, `helenus shell` talks to one, `helenus admin` and `helenus nodetool` administer one,
//! `helenus check` looks at the data of one that is stopped and `helenus encrypt` encrypts it, `helenus fql` and `helenus replay` read a full query log, `helenus advise` advises on a schema.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use helenus::node::Node;
use helenus::node::error::StartError;
use helenus::node::offline;
use helenus::node::secure::{OwnCertificates, secure};
use helenus_admin::{AdminArguments, NodetoolArguments};
use helenus_audit::command::{self, FqlArguments, ReplayArguments};
use helenus_config::{CommitLogMode, Config, ConfigError, LogFormat, nearest, summary};
use helenus_internode::endpoint::{Endpoint, Host};
use helenus_ring::HostId;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// A request makes a handful of small buffers: an allocator that keeps them on their thread halves the cost of the
/// system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit status of a node that has left its cluster or was removed from it, now or before this start.
const STATUS_REMOVED: u8 = 3;

#[derive(Parser)]
#[command(name = "helenus", version, about = "A Cassandra-compatible wide-column database server")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a node until it gets SIGTERM or SIGINT.
    Node(NodeArguments),
    /// Reads a data directory on which no node runs, and reports what is missing or damaged: exit status 1 if anything is.
    Check(OfflineArguments),
    /// Encrypts all files of a node that is stopped by the current master key: those that are not encrypted, and those with an older key.
    Encrypt(OfflineArguments),
    /// Executes an operator's command on a running node.
    Admin(AdminArguments),
    /// Executes a verb of Cassandra's nodetool on a running node.
    Nodetool(NodetoolArguments),
    /// Reads the files of a full query log.
    Fql(FqlArguments),
    /// Asks a node again what a full query log has recorded, and compares: exit status 1 if something ends otherwise.
    Replay(ReplayArguments),
    /// Advises on the keys, indexes and tables that the statements of an application need.
    Advise(helenus_advise::AdviseArguments),
    /// Opens an interactive CQL shell.
    Shell(helenus_shell::Args),
}

/// The arguments of `helenus check` and `helenus encrypt`.
#[derive(clap::Args)]
struct OfflineArguments {
    /// The data directory.
    data_dir: PathBuf,
    /// Configuration file (TOML) of the node, which names further directories.
    #[arg(long, env = "HELENUS_CONFIG")]
    config: Option<PathBuf>,
}

/// The arguments of `helenus node`: flags over `HELENUS_*` variables over the configuration file.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
struct NodeArguments {
    /// Configuration file (TOML).
    #[arg(long, env = "HELENUS_CONFIG")]
    config: Option<PathBuf>,
    #[arg(long, help = summary("data_dir"), env = "HELENUS_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[arg(long, help = summary("listen"), env = "HELENUS_LISTEN")]
    listen: Option<SocketAddr>,
    #[arg(long, help = summary("broadcast_rpc_address"), env = "HELENUS_BROADCAST_RPC_ADDRESS", value_name = "HOST")]
    broadcast_rpc_address: Option<Host>,
    #[arg(long, help = summary("shard_aware_port"), env = "HELENUS_SHARD_AWARE_PORT")]
    shard_aware_port: Option<u16>,
    #[arg(long, help = summary("shards"), env = "HELENUS_SHARDS")]
    shards: Option<usize>,
    #[arg(long, help = summary("commit_log"), env = "HELENUS_COMMIT_LOG")]
    commit_log: Option<CommitLogMode>,
    #[arg(long, help = summary("memtable_bytes"), env = "HELENUS_MEMTABLE_BYTES")]
    memtable_bytes: Option<u64>,
    #[arg(long, help = summary("block_cache_bytes"), env = "HELENUS_BLOCK_CACHE_BYTES")]
    block_cache_bytes: Option<u64>,
    #[arg(long, help = summary("cluster_name"), env = "HELENUS_CLUSTER_NAME")]
    cluster_name: Option<String>,
    #[arg(long, help = summary("data_center"), env = "HELENUS_DATA_CENTER")]
    data_center: Option<String>,
    #[arg(long, help = summary("rack"), env = "HELENUS_RACK")]
    rack: Option<String>,
    #[arg(long, help = summary("internode"), env = "HELENUS_INTERNODE")]
    internode: Option<Endpoint>,
    #[arg(long, help = summary("broadcast_address"), env = "HELENUS_BROADCAST_ADDRESS", value_name = "HOST")]
    broadcast_address: Option<Host>,
    #[arg(long, help = summary("seeds"), env = "HELENUS_SEEDS", value_delimiter = ',')]
    seeds: Option<Vec<Endpoint>>,
    #[arg(long, help = summary("replace"), env = "HELENUS_REPLACE", value_name = "HOST_ID")]
    replace: Option<HostId>,
    #[arg(long, help = summary("replace_accept_loss"), env = "HELENUS_REPLACE_ACCEPT_LOSS", value_parser = clap::builder::BoolishValueParser::new())]
    accept_loss: bool,
    #[arg(long, help = summary("http_port"), env = "HELENUS_HTTP_PORT")]
    http_port: Option<u16>,
    #[arg(long, help = summary("http_listen"), env = "HELENUS_HTTP_LISTEN", value_name = "ADDRESS")]
    http_listen: Option<SocketAddr>,
    /// Serve no HTTP port for administration; the Unix socket stays.
    #[arg(long, env = "HELENUS_NO_HTTP", value_parser = clap::builder::BoolishValueParser::new())]
    no_http: bool,
    #[arg(long, help = summary("admin_socket"), env = "HELENUS_ADMIN_SOCKET", value_name = "PATH")]
    admin_socket: Option<PathBuf>,
    #[arg(long, help = summary("metrics_listen"), env = "HELENUS_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    #[arg(long, help = summary("log_format"), env = "HELENUS_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    #[arg(long, help = summary("log_filter"), env = "HELENUS_LOG")]
    log_filter: Option<String>,
    /// Turn logins, permissions and TLS on, with certificates that the node makes itself beside its data directory, and print how to
    /// connect. What the settings say about these stays.
    #[arg(long, env = "HELENUS_SECURE", value_parser = clap::builder::BoolishValueParser::new())]
    secure: bool,
    /// Print the settings in force as TOML and exit.
    #[arg(long)]
    show_config: bool,
}

impl NodeArguments {
    fn config(self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        macro_rules! take {
            ($($name:ident),*) => { $(if let Some(value) = self.$name { config.$name = value; })* };
        }
        take!(
            data_dir,
            listen,
            commit_log,
            memtable_bytes,
            block_cache_bytes,
            cluster_name,
            data_center,
            rack,
            seeds,
            log_format,
            log_filter
        );
        config.shards = self.shards.or(config.shards);
        config.internode = self.internode.or(config.internode);
        config.broadcast_address = self.broadcast_address.or(config.broadcast_address);
        config.broadcast_rpc_address = self.broadcast_rpc_address.or(config.broadcast_rpc_address);
        config.shard_aware_port = self.shard_aware_port.or(config.shard_aware_port);
        config.http_port = self.http_port.or(config.http_port);
        config.http_listen = self.http_listen.or(config.http_listen);
        config.admin_socket = self.admin_socket.or(config.admin_socket);
        config.metrics_listen = self.metrics_listen.or(config.metrics_listen);
        config.replace = self.replace.or(config.replace);
        config.replace_accept_loss |= self.accept_loss;
        config.http_enabled &= !self.no_http;
        Ok(config)
    }
}

fn main() -> ExitCode {
    match Arguments::parse_from(helenus_admin::with_long_options(std::env::args_os())).command {
        Command::Node(arguments) => run_node(arguments),
        Command::Check(arguments) => run_check(arguments),
        Command::Encrypt(arguments) => run_encrypt(arguments),
        Command::Admin(arguments) => helenus_admin::main_with_args(&arguments),
        Command::Nodetool(arguments) => helenus_admin::nodetool_main(&arguments),
        Command::Fql(arguments) => command::fql_main(&arguments),
        Command::Replay(arguments) => command::replay_main(&arguments, &helenus_admin::read_password),
        Command::Advise(arguments) => helenus_advise::run(&arguments),
        Command::Shell(arguments) => helenus_shell::main_with_args(&arguments),
    }
}

/// Makes the allocator use small pages only. With huge pages, which it requests by default, the system clears 2 MiB
/// (or first makes room for them) within one page fault: on a shard's thread every request waits for that. A single
/// node keeps huge pages: requests cost it a few percent less CPU, and what makes the faults frequent is memory that
/// grows by streams.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::info!(%error, "could not turn off transparent huge pages");
    }
}

impl OfflineArguments {
    fn config(self) -> Result<Config, ConfigError> {
        let config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::from_file)?;
        Ok(Config { data_dir: self.data_dir, ..config })
    }
}

fn run_encrypt(arguments: OfflineArguments) -> ExitCode {
    match arguments.config().map_err(StartError::from).and_then(|config| offline::encrypt(&config)) {
        Ok(done) => {
            print!("{}", done.text());
            if done.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&error),
    }
}

fn run_check(arguments: OfflineArguments) -> ExitCode {
    match arguments.config().map_err(StartError::from).and_then(|config| offline::check(&config)) {
        Ok(report) => {
            print!("{}", report.text());
            if report.has_problems() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => fail(&error),
    }
}

#[allow(clippy::disallowed_methods, reason = "a program waits for its node to stop")]
fn run_node(arguments: NodeArguments) -> ExitCode {
    let (show_config, is_secure) = (arguments.show_config, arguments.secure);
    let mut config = match arguments.config() {
        Ok(config) => config,
        Err(error) => return fail(&error),
    };
    let (told, own) = match is_secure.then(|| secure(&mut config)) {
        Some(secured) => (Some(secured.told), secured.certificates),
        None => (None, None),
    };
    // What is not set may have been turned on.
    if let Err(error) = config.validate() {
        return fail(&error);
    }
    if show_config {
        return match toml::to_string(&config) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error),
        };
    }
    helenus::logs::start(&config);
    warn_of_unknown_variables();
    if config.internode.is_some() {
        use_small_pages();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let mut signals = match runtime.block_on(async { Signals::new() }) {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    let (node, is_stopped) = match runtime.block_on(start_node(config, own, &mut signals)) {
        Ok(Ok(started)) => started,
        Ok(Err(StartError::Interrupted)) => return ExitCode::SUCCESS,
        Ok(Err(error @ StartError::Removed { .. })) => {
            fail(&error);
            return ExitCode::from(STATUS_REMOVED);
        }
        Ok(Err(error)) => return fail(&error),
        Err(error) => return fail(&error),
    };
    if let Some(told) = told {
        // Who does not listen finds it in the documentation. Whoever waits for the address has been told before.
        let _ = write!(std::io::stderr(), "{told}");
    }
    if let Err(error) = writeln!(std::io::stdout(), "listening on {}", node.address()) {
        tracing::warn!(%error, "could not print the address on which this node listens");
    }
    if let Some(address) = node.internode_address() {
        tracing::info!(%address, "internode");
    }
    tracing::info!(
        address = %node.address(), shard_aware = %node.shard_aware_address(), shards = node.shared().shard_count(),
        host_id = %node.shared().host_id, "ready"
    );
    let is_removed = !is_stopped
        && runtime.block_on(async {
            tokio::select! {
                () = signals.next() => false,
                () = node.removed() => true,
                // The reason is in the log. What was acknowledged is in the commit log.
                () = node.failed() => std::process::exit(1),
            }
        });
    if is_removed {
        tracing::warn!(
            status = STATUS_REMOVED,
            "stopping: this node was removed from the cluster; erase its data directory to join anew"
        );
    } else {
        tracing::info!("stopping");
    }
    runtime.spawn(signals.end_at_next());
    let stopped = runtime.block_on(async move { tokio::task::spawn_blocking(move || node.shutdown()).await });
    match stopped {
        Ok(Ok(())) if is_removed => ExitCode::from(STATUS_REMOVED),
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(&error),
        Err(error) => fail(&error),
    }
}

/// Starts the node, unless a signal arrives first: a start may wait for a cluster and stream data for a long time.
/// True: a signal arrived after the start had completed, and the node must be stopped.
#[allow(clippy::disallowed_methods, reason = "a program waits for its node to start")]
async fn start_node(
    config: Config,
    own: Option<OwnCertificates>,
    signals: &mut Signals,
) -> Result<Result<(Node, bool), StartError>, tokio::task::JoinError> {
    let (interrupt, interrupted) = oneshot::channel();
    let mut starting =
        tokio::task::spawn_blocking(move || Node::start_unless(config, own.as_ref(), interrupted));
    tokio::select! {
        started = &mut starting => started.map(|started| started.map(|node| (node, false))),
        () = signals.next() => {
            tracing::info!("stopping before the start has completed");
            // The start may have completed by now.
            let _ = interrupt.send(());
            tokio::select! {
                started = starting => started.map(|started| started.map(|node| (node, true))),
                () = signals.next() => std::process::exit(1),
            }
        }
    }
}

/// The signals that stop the node.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches the signals from now on. Must be called within a runtime.
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Ends the process at the next signal, even if data has not been flushed.
    async fn end_at_next(mut self) {
        self.next().await;
        std::process::exit(1);
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Warns of environment variables that are no settings: misspelt, or settings that only the file can have.
fn warn_of_unknown_variables() {
    const PREFIX: &str = "HELENUS_";
    let command = Arguments::command();
    let arguments = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let known: Vec<&str> = arguments
        .filter_map(|argument| argument.get_env()?.to_str())
        .chain([
            helenus_shell::HISTORY_VARIABLE,
            helenus_admin::URL_VARIABLE,
            helenus_admin::PASSWORD_FILE_VARIABLE,
        ])
        .filter_map(|name| name.strip_prefix(PREFIX))
        .collect();
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if !known.contains(&name) {
            let suggestion =
                nearest(name, &known).map_or(String::new(), |near| format!("; did you mean {PREFIX}{near}?"));
            tracing::warn!("unknown environment variable {PREFIX}{name}{suggestion}");
        }
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    // If it cannot be written, the exit status still shows the error.
    let _ = writeln!(std::io::stderr(), "helenus: {error}");
    ExitCode::FAILURE
}
