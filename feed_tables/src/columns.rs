//! The columns of a log table, by the columns of its base table.
//!
//! * Keys of the base table, and columns of one cell, have a column of the same name and type. None of them is static or a key.
//! * A column of many cells has one with its frozen type; a list is a map from the timeuuids that place its elements.
//! * Each column that is no key has `cdc$deleted_<name>` (boolean), and if it has many cells `cdc$deleted_elements_<name>`: the set of the
//!   removed keys, of the timeuuids of a list, or of the positions of a user type's fields.

use cql_lite::types::CqlType;

/// What the name of a log table has behind that of its base table.
pub const LOG_SUFFIX: &str = "_scylla_cdc_log";
/// The partition key: the stream.
pub const STREAM_ID: &str = "cdc$stream_id";
/// The first clustering column: a timeuuid.
pub const TIME: &str = "cdc$time";
/// The second clustering column: counts the entries of one time.
pub const BATCH_SEQ_NO: &str = "cdc$batch_seq_no";
pub const OPERATION: &str = "cdc$operation";
/// The time to live of what was written, in seconds.
pub const TTL: &str = "cdc$ttl";
/// Whether the entry is the last one of its time.
pub const END_OF_BATCH: &str = "cdc$end_of_batch";

/// Where a column of a log table stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    PartitionKey,
    Clustering { position: usize },
    Regular,
}

/// A column of a log table.
#[derive(Debug, Clone, PartialEq)]
pub struct LogColumn {
    pub name: String,
    pub column_type: CqlType,
    pub place: Place,
}

/// The name of the log table of a table.
pub fn log_name(table: &str) -> String {
    format!("{table}{LOG_SUFFIX}")
}

/// The name of the table whose log table has this name, if it is one's.
pub fn base_name(log: &str) -> Option<&str> {
    log.strip_suffix(LOG_SUFFIX).filter(|name| !name.is_empty())
}

/// The name of the column that says whether a column was deleted.
pub fn deleted_name(column: &str) -> String {
    format!("cdc$deleted_{column}")
}

/// The name of the column with the elements that were removed from a column.
pub fn deleted_elements_name(column: &str) -> String {
    format!("cdc$deleted_elements_{column}")
}

/// The type of the log's column for a column of the base table.
pub fn logged_type(column_type: &CqlType) -> CqlType {
    match column_type {
        CqlType::List { element, frozen: false } => {
            CqlType::map(CqlType::Timeuuid, element.as_ref().clone(), true)
        }
        CqlType::Set { element, frozen: false } => CqlType::set(element.as_ref().clone(), true),
        CqlType::Map { key, value, frozen: false } => {
            CqlType::map(key.as_ref().clone(), value.as_ref().clone(), true)
        }
        CqlType::UserType { definition, .. } => {
            CqlType::UserType { definition: definition.clone(), frozen: true }
        }
        other => other.clone(),
    }
}

/// The type of the log's column for elements that were removed. `None`: the column has one cell.
pub fn deleted_elements_type(column_type: &CqlType) -> Option<CqlType> {
    let element = match column_type {
        CqlType::List { frozen: false, .. } => CqlType::Timeuuid,
        CqlType::Set { element, frozen: false } => element.as_ref().clone(),
        CqlType::Map { key, frozen: false, .. } => key.as_ref().clone(),
        CqlType::UserType { frozen: false, .. } => CqlType::Smallint,
        _ => return None,
    };
    Some(CqlType::set(element, true))
}

/// The columns of the log table of a table with these keys, and these other columns.
pub fn log_columns<'c>(
    keys: impl IntoIterator<Item = (&'c str, &'c CqlType)>,
    values: impl IntoIterator<Item = (&'c str, &'c CqlType)>,
) -> Vec<LogColumn> {
    let own = |name: &str, column_type, place| LogColumn { name: name.to_owned(), column_type, place };
    let mut columns = vec![
        own(STREAM_ID, CqlType::Blob, Place::PartitionKey),
        own(TIME, CqlType::Timeuuid, Place::Clustering { position: 0 }),
        own(BATCH_SEQ_NO, CqlType::Int, Place::Clustering { position: 1 }),
        own(OPERATION, CqlType::Tinyint, Place::Regular),
        own(TTL, CqlType::Bigint, Place::Regular),
        own(END_OF_BATCH, CqlType::Boolean, Place::Regular),
    ];
    let regular = |name: String, column_type| LogColumn { name, column_type, place: Place::Regular };
    columns.extend(keys.into_iter().map(|(name, of)| regular(name.to_owned(), of.clone())));
    for (name, of) in values {
        columns.push(regular(name.to_owned(), logged_type(of)));
        columns.push(regular(deleted_name(name), CqlType::Boolean));
        let elements = deleted_elements_type(of);
        columns.extend(elements.map(|elements| regular(deleted_elements_name(name), elements)));
    }
    columns
}

/// A name that two columns of a log table would have.
pub fn name_taken_twice(columns: &[LogColumn]) -> Option<&str> {
    let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_table_has_scylladbs_columns() {
        fn borrowed<'c>((name, of): &'c (&'static str, CqlType)) -> (&'c str, &'c CqlType) {
            (name, of)
        }

        let parse = |text: &str| CqlType::parse(text, &|_| None).unwrap();
        let keys = [("p", parse("int")), ("c", parse("frozen<list<int>>"))];
        let values = [
            ("a", parse("text")),
            ("f", parse("frozen<map<int, text>>")),
            ("l", parse("list<int>")),
            ("m", parse("map<text, int>")),
            ("s", parse("set<uuid>")),
        ];
        let columns = log_columns(keys.iter().map(borrowed), values.iter().map(borrowed));
        let shown: Vec<String> =
            columns[6..].iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
        let expected = [
            "p int",
            "c frozen<list<int>>",
            "a text",
            "cdc$deleted_a boolean",
            "f frozen<map<int, text>>",
            "cdc$deleted_f boolean",
            "l frozen<map<timeuuid, int>>",
            "cdc$deleted_l boolean",
            "cdc$deleted_elements_l frozen<set<timeuuid>>",
            "m frozen<map<text, int>>",
            "cdc$deleted_m boolean",
            "cdc$deleted_elements_m frozen<set<text>>",
            "s frozen<set<uuid>>",
            "cdc$deleted_s boolean",
            "cdc$deleted_elements_s frozen<set<uuid>>",
        ];
        assert_eq!(shown, expected);
        assert_eq!(columns.iter().filter(|column| column.place != Place::Regular).count(), 3);
        assert_eq!(name_taken_twice(&columns), None);
        let (of, clash) = (CqlType::Int, [("a", CqlType::Int), ("cdc$deleted_a", CqlType::Int)]);
        let columns = log_columns([("p", &of)], clash.iter().map(borrowed));
        assert_eq!(name_taken_twice(&columns), Some("cdc$deleted_a"));
    }

    #[test]
    fn names_lead_from_a_table_to_its_log_and_back() {
        assert_eq!(log_name("t"), "t_scylla_cdc_log");
        assert_eq!(base_name("t_scylla_cdc_log"), Some("t"));
        assert_eq!((base_name("t"), base_name("_scylla_cdc_log")), (None, None));
    }
}
