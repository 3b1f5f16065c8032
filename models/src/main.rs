//! `helenus-demo`: runs the three models against a running node or an embedded one and prints their tables.

use std::process::ExitCode;

use clap::Parser;
use helenus_models::client::Client;
use helenus_models::disk::{DiskUsage, NotAvailable};
use helenus_models::embedded::EmbeddedNode;
use helenus_models::error::Error;
use helenus_models::options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.contact_points.is_empty() {
        run_embedded(&options).await
    } else {
        run_remote(&options).await
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("helenus-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_remote(options: &Options) -> Result<(), Error> {
    run(options, &options.contact_points, &NotAvailable).await
}

async fn run_embedded(options: &Options) -> Result<(), Error> {
    let node = EmbeddedNode::start().await?;
    let outcome = run(options, &[node.address().to_string()], &node.disk_usage()).await;
    // The first error says more than a later error of the node.
    outcome.and(node.shutdown().await)
}

async fn run(options: &Options, contact_points: &[String], disk: &dyn DiskUsage) -> Result<(), Error> {
    let client = Client::connect(options, contact_points).await?;
    Box::pin(helenus_models::run(options, &client, disk, &mut std::io::stdout())).await
}
