//! `helenus-soak`: kills a node under load, again and again, and checks after each start that every acknowledged
//! write is there and none is half there.
//!
//! A round: start the node, read back and compare everything the ledger knows, write from many tasks at once, then
//! `kill -9` at a random moment (each tenth round has a SIGTERM instead, which has to drain and end with status 0; it
//! does not count). In a third of the rounds the end of the commit log is torn afterwards: once the acknowledged writes
//! are done, further writes are made that count as unacknowledged, the node is killed, and what those added to the log
//! is cut off or overwritten, as a power failure could have left it.
//!
//! The run is repeatable in what it does (`--seed`), not in its timing. It ends with a plain line of totals; status 1
//! and the reason when a promise was broken. On failure the data directory is kept.

mod damage;
mod error;
mod ledger;
mod node;
mod random;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;

use crate::error::SoakError;
use crate::ledger::{Ledger, Totals};
use crate::node::Node;
use crate::random::Random;
use crate::workload::Workload;

/// Kills a node under load and checks that nothing acknowledged is lost and nothing is half there.
#[derive(Debug, Parser)]
struct Options {
    /// The helenus program.
    #[arg(long)]
    binary: PathBuf,
    /// How often to kill the node.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Tasks that write at the same time.
    #[arg(long, default_value_t = 16)]
    writers: u32,
    /// Shards of the node.
    #[arg(long, default_value_t = 2)]
    shards: u32,
    /// Commit-log mode: only `group` and `batch` promise durability at the acknowledgement.
    #[arg(long, default_value = "group", value_parser = ["group", "batch"])]
    commit_log: String,
    /// Longest time of load in a round, in milliseconds.
    #[arg(long, default_value_t = 600)]
    load_ms: u64,
    /// Seed of the choices; absent: from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Where the node keeps its data; absent: a temporary directory.
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(random::seed_from_clock);
    println!(
        "soak: {} kills, {} writers, commit log {}, seed {seed}",
        options.rounds, options.writers, options.commit_log
    );
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(soak(&options, seed)) {
        Ok(totals) => {
            println!("{totals}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("soak failed (seed {seed}): {error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(options: &Options, seed: u64) -> Result<Totals, SoakError> {
    let temporary = tempfile::Builder::new()
        .prefix("helenus-soak-")
        .tempdir()
        .map_err(SoakError::io("temporary directory"))?;
    let data_dir = options.data_dir.clone().unwrap_or_else(|| temporary.path().join("data"));
    let mut random = Random::new(seed);
    let mut ledgers: Vec<Ledger> =
        (0..options.writers).map(|writer| Ledger::new(writer, random.next())).collect();
    let mut totals = Totals::default();
    let outcome = rounds(options, &data_dir, &mut random, &mut ledgers, &mut totals).await;
    if outcome.is_err() {
        let kept = temporary.keep();
        println!("kept: {}", kept.display());
    }
    outcome.map(|()| totals)
}

async fn rounds(
    options: &Options,
    data_dir: &std::path::Path,
    random: &mut Random,
    ledgers: &mut Vec<Ledger>,
    totals: &mut Totals,
) -> Result<(), SoakError> {
    let mut round = 0;
    while totals.kills < u64::from(options.rounds) {
        round += 1;
        let mut node = Node::start(&options.binary, data_dir, &options.commit_log, options.shards).await?;
        let workload = Arc::new(Workload::connect(node.address()).await?);
        verify(&workload, ledgers, false, node.log_path()).await?;

        let load = Duration::from_millis(random.between(options.load_ms / 10, options.load_ms));
        match round % 30 {
            10 | 20 | 0 => {
                write_for(&workload, ledgers, load, true).await?;
                drop(workload);
                node.terminate().await?;
                totals.drains += 1;
            }
            n if n % 3 == 1 => {
                write_for(&workload, ledgers, load, true).await?;
                let before = damage::LogImage::read(data_dir)?;
                write_until_killed(&workload, ledgers, Duration::from_millis(30), &mut node).await?;
                totals.kills += 1;
                for ledger in ledgers.iter_mut() {
                    ledger.doubt_since_barrier();
                }
                totals.torn_tails += damage::tear(&before, data_dir, random)?;
            }
            _ => {
                for ledger in ledgers.iter_mut() {
                    ledger.barrier();
                }
                write_until_killed(&workload, ledgers, load, &mut node).await?;
                totals.kills += 1;
            }
        }
        if round % 10 == 0 {
            println!("round {round}: {}", Totals { writes: ledger::acknowledged(ledgers), ..*totals });
        }
    }
    let mut node = Node::start(&options.binary, data_dir, &options.commit_log, options.shards).await?;
    let workload = Arc::new(Workload::connect(node.address()).await?);
    verify(&workload, ledgers, true, node.log_path()).await?;
    drop(workload);
    node.terminate().await?;
    totals.writes = ledger::acknowledged(ledgers);
    Ok(())
}

/// Compares the node's data with every ledger; `whole` also reads what earlier rounds have verified.
async fn verify(
    workload: &Arc<Workload>,
    ledgers: &mut Vec<Ledger>,
    whole: bool,
    log: &std::path::Path,
) -> Result<(), SoakError> {
    let checks = ledgers.drain(..).map(|mut ledger| {
        let workload = Arc::clone(workload);
        tokio::spawn(async move { workload.verify(&mut ledger, whole).await.map(|()| ledger) })
    });
    for check in futures::future::join_all(checks).await {
        let ledger = check.map_err(SoakError::task)?;
        ledgers.push(ledger.map_err(|error| error.with_log(log))?);
    }
    Ok(())
}

/// Writes from all tasks for a time, then lets each finish the write it is at, so that all are acknowledged.
async fn write_for(
    workload: &Arc<Workload>,
    ledgers: &mut Vec<Ledger>,
    load: Duration,
    barrier_after: bool,
) -> Result<(), SoakError> {
    let stop = Arc::new(AtomicBool::new(false));
    let writers = spawn_writers(workload, ledgers, &stop);
    tokio::time::sleep(load).await;
    stop.store(true, Ordering::Relaxed);
    for writer in futures::future::join_all(writers).await {
        let (mut ledger, failure) = writer.map_err(SoakError::task)?;
        if let Some(failure) = failure {
            return Err(SoakError::Refused(format!("a write failed while the node ran: {failure}")));
        }
        if barrier_after {
            ledger.barrier();
        }
        ledgers.push(ledger);
    }
    Ok(())
}

/// Writes from all tasks, kills the node after a time, and collects the tasks as their requests fail.
async fn write_until_killed(
    workload: &Arc<Workload>,
    ledgers: &mut Vec<Ledger>,
    load: Duration,
    node: &mut Node,
) -> Result<(), SoakError> {
    let stop = Arc::new(AtomicBool::new(false));
    let writers = spawn_writers(workload, ledgers, &stop);
    let end = Instant::now() + load;
    tokio::time::sleep_until(end.into()).await;
    node.kill().await?;
    stop.store(true, Ordering::Relaxed);
    for writer in futures::future::join_all(writers).await {
        ledgers.push(writer.map_err(SoakError::task)?.0);
    }
    Ok(())
}

type Writer = tokio::task::JoinHandle<(Ledger, Option<String>)>;

fn spawn_writers(workload: &Arc<Workload>, ledgers: &mut Vec<Ledger>, stop: &Arc<AtomicBool>) -> Vec<Writer> {
    ledgers
        .drain(..)
        .map(|mut ledger| {
            let (workload, stop) = (Arc::clone(workload), Arc::clone(stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if let Err(failure) = workload.write(&mut ledger).await {
                        return (ledger, Some(failure.to_string()));
                    }
                }
                (ledger, None)
            })
        })
        .collect()
}
