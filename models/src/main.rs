//! `helenus-demo`: runs the three models against a running node or an embedded one and prints their tables.

use std::process::ExitCode;

use clap::Parser;
use helenus_models::client::Client;
use helenus_models::disk::NotAvailable;
use helenus_models::error::Error;
use helenus_models::options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("helenus-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Error> {
    let client = Client::connect(options, &options.contact_points).await?;
    helenus_models::run(options, &client, &NotAvailable, &mut std::io::stdout()).await
}
