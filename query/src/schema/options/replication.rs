//! The options of a keyspace: its replication map and `durable_writes`.
//!
//! Error texts are Cassandra's. A `NetworkTopologyStrategy` with `replication_factor` is expanded to the known data
//! centers when the statement is executed, so that the catalog has data centers only.

use std::collections::BTreeMap;

use super::properties::Properties;
use crate::error::{RequestError, Result};
use crate::schema::catalog::Replication;

const PACKAGE: &str = "org.apache.cassandra.locator.";
const FACTOR: &str = "replication_factor";
/// Cassandra's `default_keyspace_rf`: the replication factor of a strategy without options.
const DEFAULT_FACTOR: u32 = 1;

/// Known data centers and the number of nodes in each.
pub type DataCenters = BTreeMap<String, usize>;

/// The options in a CREATE or ALTER KEYSPACE; `None` for those that are not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub replication: Option<Replication>,
    pub durable_writes: Option<bool>,
}

impl KeyspaceOptions {
    /// Reads the properties of CREATE KEYSPACE (`previous` absent) or ALTER KEYSPACE.
    pub fn from_properties(
        properties: &Properties,
        keyspace: &str,
        previous: Option<&Replication>,
        data_centers: &DataCenters,
    ) -> Result<Self> {
        properties.refuse_unknown(&["replication", "durable_writes"])?;
        let replication = match properties.map("replication")? {
            Some(map) => Some(replication(map, keyspace, previous, data_centers)?),
            None => None,
        };
        Ok(Self { replication, durable_writes: properties.boolean("durable_writes")? })
    }
}

fn replication(
    map: &BTreeMap<String, String>,
    keyspace: &str,
    previous: Option<&Replication>,
    data_centers: &DataCenters,
) -> Result<Replication> {
    let mut options = map.clone();
    let Some(class) = options.remove("class") else {
        return configuration("Missing replication strategy class");
    };
    match class.strip_prefix(PACKAGE).unwrap_or(&class) {
        "SimpleStrategy" => simple(options, keyspace, previous),
        "NetworkTopologyStrategy" => network_topology(options, keyspace, previous, data_centers),
        "LocalStrategy" => Err(RequestError::Invalid(
            "Unable to use given strategy class: LocalStrategy is reserved for internal use.".to_owned(),
        )),
        _ => {
            let class = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
            configuration(format!("Unable to find replication strategy class '{class}'"))
        }
    }
}

fn simple(
    mut options: BTreeMap<String, String>,
    keyspace: &str,
    previous: Option<&Replication>,
) -> Result<Replication> {
    let replication_factor = match (options.remove(FACTOR), previous) {
        (Some(text), _) => factor(&text)?,
        (None, None) => DEFAULT_FACTOR,
        (None, Some(Replication::Simple { replication_factor })) => *replication_factor,
        (None, Some(_)) => {
            return configuration("SimpleStrategy requires a replication_factor strategy option.");
        }
    };
    match options.keys().next() {
        Some(unknown) => unrecognized(unknown, "SimpleStrategy", keyspace),
        None => Ok(Replication::Simple { replication_factor }),
    }
}

fn network_topology(
    mut options: BTreeMap<String, String>,
    keyspace: &str,
    previous: Option<&Replication>,
    data_centers: &DataCenters,
) -> Result<Replication> {
    let spread = match (options.remove(FACTOR), previous) {
        (Some(text), _) => Some(factor(&text)?),
        (None, None) if options.is_empty() => Some(DEFAULT_FACTOR),
        (None, Some(Replication::Simple { replication_factor })) if options.is_empty() => {
            Some(*replication_factor)
        }
        (None, _) => None,
    };
    let mut replicas = BTreeMap::new();
    for (name, text) in &options {
        if !data_centers.contains_key(name) {
            return unrecognized(name, "NetworkTopologyStrategy", keyspace);
        }
        replicas.insert(name.clone(), factor(text)?);
    }
    if let Some(spread) = spread {
        // Data centers that the keyspace is in already keep their factor, as in Cassandra.
        if let Some(Replication::NetworkTopology { data_centers: before }) = previous {
            for (name, count) in before {
                replicas.entry(name.clone()).or_insert(*count);
            }
        }
        for name in data_centers.keys() {
            replicas.entry(name.clone()).or_insert(spread);
        }
    }
    replicas.retain(|_, count| *count > 0);
    if replicas.is_empty() {
        return configuration("Configuration for at least one datacenter must be present");
    }
    Ok(Replication::NetworkTopology { data_centers: replicas })
}

fn factor(text: &str) -> Result<u32> {
    if text.contains('/') {
        return configuration("Transient replication is not supported by Helenus");
    }
    match text.trim().parse::<i32>() {
        Ok(factor) => u32::try_from(factor).map_err(|_| {
            RequestError::Configuration(format!("Replication factor must be non-negative, found {factor}"))
        }),
        Err(_) => configuration(format!("Replication factor must be numeric; found {text}")),
    }
}

fn unrecognized<T>(option: &str, class: &str, keyspace: &str) -> Result<T> {
    configuration(format!(
        "Unrecognized strategy option {{{option}}} passed to {class} for keyspace {keyspace}"
    ))
}

fn configuration<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Configuration(message.into()))
}

/// Cassandra's warnings if more replicas are requested than there are nodes.
pub fn replication_warnings(
    replication: &Replication,
    keyspace: &str,
    data_centers: &DataCenters,
) -> Vec<String> {
    let text = |factor: u32, nodes: usize| {
        format!(
            "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes {nodes}"
        )
    };
    match replication {
        Replication::Local => Vec::new(),
        Replication::Simple { replication_factor } => {
            let nodes = data_centers.values().sum();
            let too_many = *replication_factor as usize > nodes;
            too_many.then(|| text(*replication_factor, nodes)).into_iter().collect()
        }
        Replication::NetworkTopology { data_centers: replicas } => replicas
            .iter()
            .filter_map(|(name, factor)| {
                let nodes = data_centers.get(name).copied().unwrap_or(0);
                (*factor as usize > nodes).then(|| format!("{} for datacenter {name}", text(*factor, nodes)))
            })
            .collect(),
    }
}

impl Replication {
    /// The map as `system_schema.keyspaces` and `DESCRIBE` show it.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let class = |name: &str| ("class".to_owned(), format!("{PACKAGE}{name}"));
        match self {
            Self::Local => BTreeMap::from([class("LocalStrategy")]),
            Self::Simple { replication_factor } => {
                BTreeMap::from([class("SimpleStrategy"), (FACTOR.to_owned(), replication_factor.to_string())])
            }
            Self::NetworkTopology { data_centers } => {
                let replicas = data_centers.iter().map(|(name, count)| (name.clone(), count.to_string()));
                std::iter::once(class("NetworkTopologyStrategy")).chain(replicas).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties::tests::{map_of, one_map};
    use super::*;

    fn centers() -> DataCenters {
        BTreeMap::from([("dc1".to_owned(), 1), ("dc2".to_owned(), 3)])
    }

    fn read(entries: &[(&str, &str)], previous: Option<&Replication>) -> Result<Replication> {
        let properties = one_map("replication", entries);
        let options = KeyspaceOptions::from_properties(&properties, "ks", previous, &centers())?;
        Ok(options.replication.unwrap())
    }

    fn topology(entries: &[(&str, u32)]) -> Replication {
        let data_centers = entries.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Replication::NetworkTopology { data_centers }
    }

    #[test]
    fn strategies_are_known_by_short_and_full_names() {
        for class in ["SimpleStrategy", "org.apache.cassandra.locator.SimpleStrategy"] {
            let replication = read(&[("class", class), ("replication_factor", "3")], None).unwrap();
            assert_eq!(replication, Replication::Simple { replication_factor: 3 });
            let shown =
                [("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", "3")];
            assert_eq!(replication.to_map(), map_of(&shown));
        }
    }

    #[test]
    fn a_replication_factor_is_spread_over_the_data_centers() {
        let class = ("class", "NetworkTopologyStrategy");
        let spread = [class, ("replication_factor", "2"), ("dc2", "3")];
        assert_eq!(read(&spread, None).unwrap(), topology(&[("dc1", 2), ("dc2", 3)]));
        assert_eq!(read(&[class], None).unwrap(), topology(&[("dc1", 1), ("dc2", 1)]));
        let before = topology(&[("dc1", 1)]);
        let wider = read(&[class, ("replication_factor", "2")], Some(&before)).unwrap();
        assert_eq!(wider, topology(&[("dc1", 1), ("dc2", 2)]));
        assert_eq!(read(&[class, ("dc1", "1"), ("dc2", "0")], None).unwrap(), topology(&[("dc1", 1)]));
    }

    #[test]
    fn wrong_maps_are_refused() {
        let error = |entries: &[(&str, &str)]| read(entries, None).unwrap_err().to_string();
        assert_eq!(error(&[("replication_factor", "1")]), "Missing replication strategy class");
        assert_eq!(
            error(&[("class", "NetworkTopologyStrategy"), ("dc1", "1"), ("nowhere", "1")]),
            "Unrecognized strategy option {nowhere} passed to NetworkTopologyStrategy for keyspace ks"
        );
        assert!(
            error(&[("class", "Nope")]).starts_with("Unable to find replication strategy class 'org.apache")
        );
        assert!(error(&[("class", "LocalStrategy")]).contains("reserved for internal use"));
        let simple = ("class", "SimpleStrategy");
        assert!(error(&[simple, ("replication_factor", "x")]).contains("must be numeric"));
        assert!(error(&[simple, ("replication_factor", "-1")]).contains("must be non-negative"));
        let without =
            read(&[("class", "NetworkTopologyStrategy")], Some(&topology(&[("dc1", 3)]))).unwrap_err();
        assert_eq!(without.to_string(), "Configuration for at least one datacenter must be present");
        read(&[simple], Some(&topology(&[("dc1", 3)]))).unwrap_err();
    }

    #[test]
    fn more_replicas_than_nodes_draw_a_warning() {
        let warnings = replication_warnings(&Replication::Simple { replication_factor: 5 }, "ks", &centers());
        assert_eq!(
            warnings,
            ["Your replication factor 5 for keyspace ks is higher than the number of nodes 4"]
        );
        assert!(replication_warnings(&topology(&[("dc2", 3)]), "ks", &centers()).is_empty());
        assert_eq!(replication_warnings(&topology(&[("dc1", 3)]), "ks", &centers()).len(), 1);
    }
}
