//! A node inside another program: tests, examples, the demo.
//!
//! ```no_run
//! use helenus::config::Config;
//!
//! let config = Config { data_dir: "data".into(), ..helenus::embedded::config() };
//! let node = helenus::embedded::start(config)?;
//! println!("CQL at {}", node.address());
//! node.shutdown().map_err(std::io::Error::other)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use helenus_config::Config;

use crate::node::Node;
use crate::node::error::StartError;

/// Settings for a node beside others on one machine: all ports are chosen by the system.
pub fn config() -> Config {
    Config {
        listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
        shard_aware_port: Some(0),
        http_port: Some(0),
        ..Config::default()
    }
}

/// Starts a node; returns when it serves clients.
pub fn start(config: Config) -> Result<Node, StartError> {
    Node::start(config)
}
