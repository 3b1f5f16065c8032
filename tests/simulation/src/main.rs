//! Simulates clusters of Helenus: many nodes in one thread, virtual time, everything from one seed.
//!
//! A seed determines a cluster, a load and a schedule of faults. The checkers decide: all guarantees to clients were
//! kept, and the replicas are equal after healing. Every run of a seed gives the same events.

mod agreement;
mod client;
mod convergence;
mod disk;
mod faults;
mod lost_files;
mod machine;
mod network;
mod panics;
mod plan;
mod repairs;
mod simulation;
mod start;
mod trace;
mod transitions;
mod workload;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use helenus_execution::planted::PlantedBug;

use crate::plan::{Choice, FaultKind, LoadKind, Plan};
use crate::simulation::Verdict;
use crate::trace::Echo;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates clusters from seeds.
#[derive(Debug, Clone, Parser)]
#[command(name = "helenus-simulate")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Options {
    /// The seeds to run: one, or FIRST..LAST (both of them included).
    #[arg(long, default_value = "1..20", value_parser = parse_seeds)]
    seeds: (u64, u64),
    /// Runs every seed twice and compares the events.
    #[arg(long)]
    twice: bool,
    /// Prints rare events as they happen.
    #[arg(long)]
    echo: bool,
    /// Prints every message and disk call too, each with the digest so far.
    #[arg(long)]
    everything: bool,
    /// Nodes of every cluster (default: chosen by the seed).
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: Option<u16>,
    /// Kinds of load to choose from (default: all).
    #[arg(long, value_delimiter = ',')]
    load: Vec<String>,
    /// Kinds of faults to choose from (default: all); `none` for none.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Number of data centers (default: the seed chooses).
    #[arg(long)]
    centers: Option<u8>,
    /// Plants a bug in every node: the checkers have to find it.
    #[arg(long)]
    plant: Option<String>,
    /// Encrypts the files of all nodes.
    #[arg(long)]
    encrypted: bool,
    /// Seeds to run concurrently.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Continues after a failing seed.
    #[arg(long)]
    keep_going: bool,
    /// Logs of the nodes: a `tracing` filter such as `helenus=debug`.
    #[arg(long)]
    log: Option<String>,
}

impl Options {
    fn echo(&self) -> Echo {
        match (self.everything, self.echo) {
            (true, _) => Echo::Everything,
            (false, true) => Echo::Notes,
            (false, false) => Echo::Nothing,
        }
    }
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|error| format!("'{text}': {error}"));
    match text.split_once("..") {
        None => number(text).map(|seed| (seed, seed)),
        Some((first, last)) => Ok((number(first)?, number(last)?)),
    }
}

/// The named ones of all kinds; all if no name is given.
fn named<T: Copy + std::fmt::Debug>(all: &[T], names: &[String]) -> Result<Vec<T>, String> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let mut found = Vec::new();
    for name in names.iter().filter(|name| *name != "none") {
        let kind = all.iter().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
        found.push(*kind.ok_or_else(|| format!("'{name}' is none of {all:?}"))?);
    }
    Ok(found)
}

/// Runs a plan on a thread of its own, because the program keeps state for each thread.
fn run(plan: &Plan, echo: Echo) -> Result<Verdict, String> {
    let plan = plan.clone();
    std::thread::Builder::new()
        .name(format!("seed-{}", plan.seed))
        .stack_size(16 << 20)
        .spawn(move || simulation::run(&plan, echo))
        .map_err(|error| error.to_string())?
        .join()
        .map_err(|_| "the simulation has panicked".to_owned())
}

/// Runs a seed. Returns false if it fails.
fn judge(seed: u64, options: &Options, choice: &Choice) -> bool {
    let plan = Plan::new(seed, choice);
    let verdict = run(&plan, options.echo()).and_then(|verdict| {
        if options.twice {
            let again = run(&plan, Echo::Nothing)?;
            if again.digest != verdict.digest {
                let differs =
                    verdict.last_events.iter().zip(&again.last_events).find(|(one, other)| one != other);
                return Err(format!(
                    "two runs of one seed differ: {} and {} events; {differs:?}",
                    verdict.events, again.events
                ));
            }
        }
        Ok(verdict)
    });
    let violations = match &verdict {
        Ok(verdict) if verdict.violations.is_empty() => {
            println!(
                "{plan}: ok, {} events in {:.1} s, digest {:016x}{}",
                verdict.events,
                verdict.virtual_time.as_secs_f64(),
                verdict.digest,
                match verdict.unjudged {
                    0 => String::new(),
                    unjudged => format!(", {unjudged} histories not judged"),
                }
            );
            return true;
        }
        Ok(verdict) => verdict.violations.clone(),
        Err(error) => vec![error.clone()],
    };
    println!("FAILED {plan}");
    println!("  commit {}", option_env!("HELENUS_COMMIT").unwrap_or("unknown"));
    println!("  again: helenus-simulate --seeds {seed} --echo{}", repeat_options(options));
    if let Ok(verdict) = &verdict
        && options.echo() == Echo::Nothing
    {
        println!("  the last events:");
        for event in &verdict.last_events {
            println!("    {event}");
        }
    }
    for violation in violations {
        println!("  {violation}");
    }
    false
}

fn repeat_options(options: &Options) -> String {
    let mut text = options.nodes.map_or(String::new(), |nodes| format!(" --nodes {nodes}"));
    for (name, values) in [("load", &options.load), ("faults", &options.faults)] {
        if !values.is_empty() {
            text.extend([" --", name, " ", &values.join(",")]);
        }
    }
    if let Some(count) = options.centers {
        text.extend([" --centers ".to_owned(), count.to_string()]);
    }
    if let Some(bug) = &options.plant {
        text.extend([" --plant ", bug]);
    }
    if options.encrypted {
        text.push_str(" --encrypted");
    }
    text
}

fn choice(options: &Options) -> Result<Choice, String> {
    Ok(Choice {
        nodes: options.nodes.map(usize::from),
        load: named(&LoadKind::ALL, &options.load)?,
        faults: named(&FaultKind::ALL, &options.faults)?,
        centers: options.centers.map(usize::from),
        is_encrypted: options.encrypted,
        planted_bug: match &options.plant {
            Some(name) => named(&PlantedBug::ALL, std::slice::from_ref(name))?.first().copied(),
            None => None,
        },
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    panics::watch();
    if let Some(filter) = &options.log {
        tracing_subscriber::fmt().with_env_filter(filter).without_time().init();
    }
    let choice = match choice(&options) {
        Ok(choice) => choice,
        Err(error) => {
            eprintln!("helenus-simulate: {error}");
            return ExitCode::from(2);
        }
    };
    if !simulation::REPLAYS {
        eprintln!(
            "helenus-simulate: built without `--cfg tokio_unstable`: a seed may give other events each time"
        );
        if options.twice {
            return ExitCode::from(2);
        }
    }
    let started = Instant::now();
    let (first, last) = options.seeds;
    let next = AtomicU64::new(first);
    let (run, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last || (failed.load(Ordering::Relaxed) > 0 && !options.keep_going) {
                        return;
                    }
                    if !judge(seed, &options, &choice) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    run.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (run, failed) = (run.into_inner(), failed.into_inner());
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    println!("{:.0} seeds a minute", run as f64 / minutes);
    println!("{} passed, {failed} failed", run - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
