//! OPTIONS and STARTUP: the options that the node supports and those that a client selects.

use cql_lite::frame::{Compression, ErrorCode, ErrorKind, ErrorResponse, ProtocolVersion};
use helenus_query::schema::virtual_tables::{CQL_VERSION, PARTITIONER};
use helenus_tls::policy::Mode;

use helenus_execution::shard::context::{IGNORE_MSB, ShardContext};

/// ScyllaDB's extension of the protocol for errors of rate limits.
const RATE_LIMIT_EXTENSION: &str = "SCYLLA_RATE_LIMIT_ERROR";

/// The options of SUPPORTED on a connection to this shard.
pub fn supported(context: &ShardContext) -> Vec<(String, Vec<String>)> {
    let one = |key: &str, value: String| (key.to_owned(), vec![value]);
    let port = |key: &str| one(key, context.node.shard_aware_port.to_string());
    // One port serves both kinds of connections.
    let ports = match context.node.config.client_encryption.mode {
        Mode::Off => vec![port("SCYLLA_SHARD_AWARE_PORT")],
        Mode::Optional => vec![port("SCYLLA_SHARD_AWARE_PORT"), port("SCYLLA_SHARD_AWARE_PORT_SSL")],
        Mode::Required => vec![port("SCYLLA_SHARD_AWARE_PORT_SSL")],
    };
    let mut options = vec![
        one("CQL_VERSION", CQL_VERSION.to_owned()),
        ("COMPRESSION".to_owned(), vec!["lz4".to_owned(), "snappy".to_owned()]),
        (
            "PROTOCOL_VERSIONS".to_owned(),
            ProtocolVersion::ALL.map(|version| version.name().to_owned()).to_vec(),
        ),
        one("SCYLLA_SHARD", context.index.to_string()),
        one("SCYLLA_NR_SHARDS", context.node.shard_count().to_string()),
        one("SCYLLA_SHARDING_IGNORE_MSB", IGNORE_MSB.to_string()),
        one("SCYLLA_PARTITIONER", PARTITIONER.to_owned()),
        one("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin".to_owned()),
        one(RATE_LIMIT_EXTENSION, format!("ERROR_CODE={}", ErrorCode::RateLimit.number())),
    ];
    options.extend(ports);
    options
}

/// The options that a client has selected in STARTUP.
#[derive(Debug, Clone, Default)]
pub struct Startup {
    pub compression: Option<Compression>,
    pub driver_name: Option<String>,
    pub driver_version: Option<String>,
    pub options: Vec<(String, String)>,
    /// Whether the client has negotiated an error of its own for too many requests.
    pub knows_rate_limits: bool,
}

/// Reads the options of STARTUP. Unknown ones are ignored, as the protocol requires.
pub fn startup(version: ProtocolVersion, options: &[(&str, &str)]) -> Result<Startup, ErrorResponse> {
    let protocol = |message: String| ErrorResponse::new(ErrorKind::Protocol, message);
    let option = |name: &str| options.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let cql_version = option("CQL_VERSION")
        .ok_or_else(|| protocol("Missing value CQL_VERSION in STARTUP message".to_owned()))?;
    let major = cql_version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if !major.is_some_and(|major| (3..=4).contains(&major)) {
        return Err(protocol(format!("CQL version {cql_version} is not supported (3.4.7 is)")));
    }
    let compression = match option("COMPRESSION") {
        None | Some("") => None,
        Some(name) => Some(
            Compression::from_name(name)
                .filter(|compression| version < ProtocolVersion::V5 || *compression == Compression::Lz4)
                .ok_or_else(|| protocol(format!("Unknown compression algorithm: {name}")))?,
        ),
    };
    Ok(Startup {
        compression,
        driver_name: option("DRIVER_NAME").map(str::to_owned),
        driver_version: option("DRIVER_VERSION").map(str::to_owned),
        knows_rate_limits: option(RATE_LIMIT_EXTENSION).is_some(),
        options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    })
}
