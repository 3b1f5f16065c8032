//! Three data models on a partitioned store, as tables, requests, data and measurements.
//!
//! * [`blog`]: one platform in three designs (normalised, denormalised, one partition a request);
//! * [`logistics`]: the events of an order, one row an event or one map an order;
//! * [`monitoring`]: points of many hosts, four partition keys by three row layouts.
//!
//! Each model makes its keyspaces from `.cql` files that any CQL server accepts, loads data that follows from a
//! seed alone, runs its requests through the Rust driver and checks **every** answer against the generator:
//! a run that ends without an error is a passed test of the server.

pub mod blog;
pub mod client;
pub mod disk;
pub mod embedded;
pub mod error;
pub mod logistics;
pub mod measure;
pub mod monitoring;
pub mod options;
pub mod progress;
pub mod random;
pub mod report;

use std::io::Write;

use client::Client;
use disk::DiskUsage;
use error::Error;
use options::{Model, Options};

/// Runs the models named in `options` one after the other and writes their tables to `output`.
pub async fn run(
    options: &Options,
    client: &Client,
    disk: &dyn DiskUsage,
    output: &mut dyn Write,
) -> Result<(), Error> {
    for model in &options.models {
        let tables = match model {
            Model::Blog => blog::run(options, client).await?,
            Model::Logistics => logistics::run(options, client).await?,
            Model::Monitoring => monitoring::run(options, client, disk).await?,
        };
        for table in tables {
            writeln!(output, "{table}").map_err(Error::Output)?;
        }
    }
    Ok(())
}
