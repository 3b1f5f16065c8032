//! The options of a run; every size has a default that lets the whole demo end in about a minute.

use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Loads three data models into a running node or an embedded one, runs their requests and prints what they took.
#[derive(Debug, Clone, Parser)]
#[command(name = "helenus-demo", version)]
pub struct Options {
    /// Use this running node or cluster (Helenus or Cassandra) instead of an embedded node; may be repeated.
    #[arg(long = "contact-point", value_name = "HOST:PORT")]
    pub contact_points: Vec<String>,
    /// Copies of each partition.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub replication_factor: u32,
    /// Name for clusters that ask for a password.
    #[arg(long, env = "HELENUS_USERNAME", requires = "password")]
    pub username: Option<String>,
    /// Password of that name.
    #[arg(long, env = "HELENUS_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// Drop the models' keyspaces first where they exist.
    #[arg(long)]
    pub replace: bool,
    /// The models to run.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1.., default_values_t = [Model::Blog, Model::Logistics, Model::Monitoring])]
    pub models: Vec<Model>,
    /// All data follows from this number.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Blog: number of users, with 5 to 50 posts each (100000 is the guide's data set).
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub users: u32,
    /// Logistics: events an order; one group of orders for each number.
    #[arg(long, value_delimiter = ',', num_args = 1.., default_values_t = [5, 50, 5_000, 500_000],
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub order_sizes: Vec<u32>,
    /// Logistics: stop filling a group of wide orders after this time and measure what is there.
    #[arg(long, default_value_t = 5, value_name = "SECONDS")]
    pub wide_load_seconds: u64,
    /// Monitoring: number of hosts, with three series each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hosts: u32,
    /// Monitoring: points a series, one every ten seconds.
    #[arg(long, default_value_t = 720, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub points: u32,
    /// Monitoring: time that one row of the hybrid layout holds.
    #[arg(long, value_enum, default_value_t = Grain::Hour)]
    pub grain: Grain,
    /// Requests in flight while loading.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub in_flight: u32,
    /// Rows a page.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(i32).range(1..))]
    pub page_size: i32,
    /// Measure each request at most this often …
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,
    /// … and stop earlier once it was busy for this time (at least one request is measured).
    #[arg(long, default_value_t = 250, value_name = "MILLISECONDS")]
    pub measure_ms: u64,
    /// A request that takes longer has failed.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout_seconds: u64,
}

/// One of the data models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Model {
    Blog,
    Logistics,
    Monitoring,
}

impl std::fmt::Display for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Model::Blog => "blog",
            Model::Logistics => "logistics",
            Model::Monitoring => "monitoring",
        })
    }
}

/// Time that one row of the hybrid monitoring layout holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Grain {
    Minute,
    Hour,
}

impl Grain {
    /// Length in milliseconds.
    pub fn milliseconds(self) -> i64 {
        match self {
            Grain::Minute => 60_000,
            Grain::Hour => 3_600_000,
        }
    }
}

impl Options {
    /// How long and how often one request is measured.
    pub fn budget(&self) -> crate::measure::Budget {
        crate::measure::Budget {
            requests_max: self.requests,
            busy_max: Duration::from_millis(self.measure_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn models_are_chosen_by_a_list() {
        let options = Options::parse_from(["helenus-demo", "--order-sizes", "5", "50", "--models", "blog"]);
        assert_eq!((options.order_sizes, options.models), (vec![5, 50], vec![Model::Blog]));
        let options = Options::parse_from(["helenus-demo", "--models", "blog,monitoring", "--users", "7"]);
        assert_eq!(options.models, [Model::Blog, Model::Monitoring]);
        assert_eq!(options.users, 7);
        assert_eq!(options.order_sizes, [5, 50, 5_000, 500_000]);
    }
}
