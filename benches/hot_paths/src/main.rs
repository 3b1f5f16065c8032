//! Runs one hot path a number of times: `helenus-hot-paths NAME OPERATIONS`; without arguments it names them all.
//! `benches/micro/run` counts its instructions with callgrind.

use std::process::ExitCode;

use helenus_hot_paths::workload::Failure;
use helenus_hot_paths::{WORKLOADS, run};

/// The allocator of the server's program: its instructions belong to the paths.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("helenus-hot-paths: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, operations] = &arguments[..] else {
        if !arguments.is_empty() {
            return Err("usage: helenus-hot-paths [NAME OPERATIONS]".into());
        }
        for (name, _) in WORKLOADS {
            println!("{name}");
        }
        return Ok(());
    };
    let operations = operations.parse().map_err(|error| format!("{operations}: {error}"))?;
    let (_, prepare) = WORKLOADS
        .into_iter()
        .find(|(known, _)| known == name)
        .ok_or_else(|| format!("{name}: no such workload"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(prepare, operations))
}
