//! The `caching` option of a table. A hint: Helenus caches blocks, not keys or rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

/// How many rows of a partition to cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowsPerPartition {
    All,
    None,
    Some(u32),
}

/// The `caching` option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caching {
    pub keys: bool,
    pub rows_per_partition: RowsPerPartition,
}

impl Default for Caching {
    fn default() -> Self {
        Self { keys: true, rows_per_partition: RowsPerPartition::None }
    }
}

impl Caching {
    /// Reads and checks the map of the `caching` option.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self> {
        let unknown: Vec<&str> = map
            .keys()
            .map(String::as_str)
            .filter(|name| !["keys", "rows_per_partition"].contains(name))
            .collect();
        if !unknown.is_empty() {
            return Err(RequestError::Configuration(format!(
                "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
                unknown.join(", ")
            )));
        }
        let keys = match map.get("keys") {
            None => false,
            Some(text) if text.eq_ignore_ascii_case("ALL") => true,
            Some(text) if text.eq_ignore_ascii_case("NONE") => false,
            Some(text) => {
                return Err(RequestError::Configuration(format!(
                    "Invalid value '{text}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed"
                )));
            }
        };
        let rows_per_partition = match map.get("rows_per_partition") {
            None => RowsPerPartition::None,
            Some(text) => rows_per_partition(text)?,
        };
        Ok(Self { keys, rows_per_partition })
    }

    /// The option as `system_schema.tables` and `DESCRIBE` show it.
    pub fn to_map(self) -> BTreeMap<String, String> {
        let keys = if self.keys { "ALL" } else { "NONE" };
        let rows = match self.rows_per_partition {
            RowsPerPartition::All => "ALL".to_owned(),
            RowsPerPartition::None => "NONE".to_owned(),
            RowsPerPartition::Some(count) => count.to_string(),
        };
        BTreeMap::from([("keys".to_owned(), keys.to_owned()), ("rows_per_partition".to_owned(), rows)])
    }
}

fn rows_per_partition(text: &str) -> Result<RowsPerPartition> {
    if text.eq_ignore_ascii_case("ALL") {
        return Ok(RowsPerPartition::All);
    }
    if text.eq_ignore_ascii_case("NONE") {
        return Ok(RowsPerPartition::None);
    }
    match text.parse::<u32>() {
        Ok(0) => Ok(RowsPerPartition::None),
        Ok(count) => Ok(RowsPerPartition::Some(count)),
        Err(_) => Err(RequestError::Configuration(format!(
            "Invalid value '{text}' for caching sub-option 'rows_per_partition': only 'ALL', 'NONE', and integer \
             values are allowed"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties::tests::map_of;
    use super::*;

    #[test]
    fn the_map_shown_reads_back() {
        for rows in ["ALL", "NONE", "200"] {
            let map = map_of(&[("keys", "NONE"), ("rows_per_partition", rows)]);
            assert_eq!(Caching::from_map(&map).unwrap().to_map(), map);
        }
        assert_eq!(Caching::from_map(&BTreeMap::new()).unwrap().to_map()["keys"], "NONE");
    }

    #[test]
    fn wrong_sub_options_are_refused() {
        let error = |entries: &[(&str, &str)]| Caching::from_map(&map_of(entries)).unwrap_err().to_string();
        assert_eq!(
            error(&[("wrong", "1")]),
            "Invalid caching sub-options [wrong]: only 'keys' and 'rows_per_partition' are allowed"
        );
        assert!(error(&[("keys", "SOME")]).contains("only 'ALL' and 'NONE' are allowed"));
        assert!(error(&[("rows_per_partition", "-1")]).contains("integer values are allowed"));
    }
}
