//! The classes of indexes, and their rules for columns and options.

use std::collections::BTreeMap;

use cql_lite::types::CqlType;
use helenus_vectors::Similarity;

use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, Table};
use crate::schema::ddl::{configuration, invalid};
use crate::schema::index::{
    CLASS_NAME, IndexKind, IndexedPart, OPTIMIZE_FOR, SIMILARITY_FUNCTION, SIMILARITY_FUNCTIONS,
    prefers_recall, similarity_named,
};

const STORAGE_ATTACHED: &str = "org.apache.cassandra.index.sai.StorageAttachedIndex";
const SASI: &str = "org.apache.cassandra.index.sasi.SASIIndex";
const ANALYZERS: &str = "org.apache.cassandra.index.sasi.analyzer.";
/// The only analyzer of SASI indexes that is supported.
const NON_TOKENIZING: &str = "NonTokenizingAnalyzer";
const OTHER_ANALYZERS: [&str; 3] = ["DelimiterAnalyzer", "NoOpAnalyzer", "StandardAnalyzer"];

/// Options of storage-attached indexes on texts, with their defaults.
const TEXT_OPTIONS: [(&str, &str); 3] =
    [("case_sensitive", "true"), ("normalize", "false"), ("ascii", "false")];
/// Options of storage-attached indexes on vectors.
const VECTOR_OPTIONS: [&str; 4] =
    ["maximum_node_connections", "construction_beam_width", SIMILARITY_FUNCTION, OPTIMIZE_FOR];
/// Of these, those of Cassandra's graphs, with the names that errors give them. Cassandra refuses them, too, unless a property of its process is set.
const GRAPH_OPTIONS: [(&str, &str); 2] = [
    ("maximum_node_connections", "Maximum node connections"),
    ("construction_beam_width", "Construction beam width"),
];
/// Options of SASI indexes.
///
/// DIFFERS: Cassandra passes over names that it does not know, and has further options of analyzers and of its memory.
const SASI_OPTIONS: [&str; 4] = ["mode", "analyzer_class", "analyzed", "case_sensitive"];

/// A column that is to be indexed, and what of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'t> {
    pub column: &'t Column,
    pub part: IndexedPart,
}

type Options = BTreeMap<String, String>;

/// The kind of an index with this class.
pub(super) fn kind(class: Option<&str>) -> Result<IndexKind> {
    let Some(class) = class else { return Ok(IndexKind::Legacy) };
    let is = |alias: &str| class.eq_ignore_ascii_case(alias);
    if class == STORAGE_ATTACHED || is("sai") || is("StorageAttachedIndex") {
        Ok(IndexKind::StorageAttached)
    } else if class == SASI || is("SASIIndex") {
        Ok(IndexKind::Sasi)
    } else {
        configuration(format!("Unable to find custom indexer class '{class}'"))
    }
}

/// Checks what an index of this kind is declared with, and returns its only target.
pub(super) fn check<'t>(
    kind: IndexKind,
    name: &str,
    table: &Table,
    targets: &[Target<'t>],
    options: &Options,
) -> Result<Target<'t>> {
    match kind {
        IndexKind::Legacy => match targets {
            [target] => refuse_vector(*target),
            _ => unreachable!("the number of targets is checked before"),
        },
        IndexKind::StorageAttached => {
            refuse_unknown(options, "StorageAttachedIndex", |name| {
                VECTOR_OPTIONS.contains(&name) || TEXT_OPTIONS.iter().any(|(option, _)| *option == name)
            })?;
            if targets.len() > 1 {
                return invalid(format!(
                    "A storage-attached index cannot be created over multiple columns: {}",
                    listed(targets)
                ));
            }
            let target = the_target(targets, "Failed to retrieve target column for: ");
            let target = target.map_err(RequestError::Invalid)?;
            check_storage_attached(name, table, target, options)?;
            Ok(target)
        }
        IndexKind::Sasi => {
            let target = the_target(targets, "failed to retrieve target column for: ");
            let target = target.map_err(RequestError::Configuration)?;
            check_sasi(target, options)?;
            refuse_vector(target)
        }
    }
}

fn the_target<'t>(targets: &[Target<'t>], refusal: &str) -> std::result::Result<Target<'t>, String> {
    match targets {
        [target] => Ok(*target),
        _ => Err(format!("{refusal}{}", listed(targets))),
    }
}

/// The targets as Cassandra shows them.
fn listed(targets: &[Target<'_>]) -> String {
    targets.iter().map(|target| target.part.target(&target.column.name)).collect::<Vec<_>>().join(", ")
}

fn refuse_unknown(options: &Options, class: &str, is_known: impl Fn(&str) -> bool) -> Result<()> {
    let names = options.keys().map(String::as_str);
    let unknown: Vec<&str> = names.filter(|name| *name != CLASS_NAME && !is_known(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    configuration(format!("Properties specified [{}] are not understood by {class}", unknown.join(", ")))
}

/// Refuses an index that compares values in their order, on a vector.
fn refuse_vector(target: Target<'_>) -> Result<Target<'_>> {
    if matches!(target.column.column_type, CqlType::Vector { .. }) {
        return invalid("Only storage-attached indexes are supported on vectors");
    }
    Ok(target)
}

/// The rules for indexes on vectors.
fn check_vectors(name: &str, table: &Table, target: Target<'_>, options: &Options) -> Result<()> {
    let Target { column, .. } = target;
    let CqlType::Vector { element, dimension } = &column.column_type else { return Ok(()) };
    if **element != CqlType::Float {
        return invalid("SAI ANN indexes are only allowed on vector columns with float elements");
    }
    if let Some((_, shown)) = GRAPH_OPTIONS.into_iter().find(|(option, _)| options.contains_key(*option)) {
        return invalid(format!("{shown} cannot be set: indexes on vectors are no graphs in Helenus"));
    }
    if let Some(written) = options.get(SIMILARITY_FUNCTION)
        && similarity_named(written).is_none()
    {
        return invalid(format!(
            "Similarity function {} was not recognized for index {name}. Valid values are: {}",
            written.to_uppercase(),
            SIMILARITY_FUNCTIONS.map(|(name, _)| name).join(", ")
        ));
    }
    if let Some(written) = options.get(OPTIMIZE_FOR)
        && prefers_recall(written).is_none()
    {
        return invalid(format!(
            "optimize_for '{}' was not recognized for index {name}. Valid values are: LATENCY, RECALL",
            written.to_uppercase()
        ));
    }
    let similarity = options.get(SIMILARITY_FUNCTION).and_then(|written| similarity_named(written));
    if *dimension == 1 && similarity.is_none_or(|similarity| similarity == Similarity::Cosine) {
        return invalid("Cosine similarity is not supported for single-dimension vectors");
    }
    // Their columns are stored as static ones, which nobody has declared.
    if table.compact.is_some() {
        return invalid("Indexes on vectors are not supported on COMPACT STORAGE tables by Helenus yet");
    }
    if column.is_primary_key() || column.is_static() {
        return invalid("Indexes on vectors are supported on regular columns only by Helenus yet");
    }
    Ok(())
}

fn check_storage_attached(name: &str, table: &Table, target: Target<'_>, options: &Options) -> Result<()> {
    let Target { column, part } = target;
    let is_same = |kind: IndexKind, column_id: u32, indexed: IndexedPart| {
        kind == IndexKind::StorageAttached && column_id == column.id && indexed == part
    };
    if table.indexes.iter().any(|index| is_same(index.kind, index.column_id, index.part)) {
        return invalid(format!(
            "Cannot create more than one storage-attached index on the same column: {}",
            column.name
        ));
    }
    let differs = |(name, default): (&str, &str)| {
        options.get(name).is_some_and(|value| !value.eq_ignore_ascii_case(default))
    };
    let is_analyzed = TEXT_OPTIONS.into_iter().any(differs);
    if is_analyzed && column.is_primary_key() {
        return invalid(format!("Cannot specify index analyzer on primary key column: {}", column.name));
    }
    let types = part.types(&column.column_type);
    let what = if part == IndexedPart::Entries { "composite type" } else { "type" };
    if let Some(unsupported) = types.iter().find(|indexed| !is_ordered(indexed)) {
        return invalid(format!("Unsupported {what} for SAI: {unsupported}"));
    }
    let shown = match types.as_slice() {
        [indexed] => indexed,
        _ => &column.column_type,
    };
    if is_analyzed {
        if !is_text(shown) {
            return invalid(format!("CQL type {shown} cannot be analyzed."));
        }
        TEXT_OPTIONS.into_iter().try_for_each(|(name, _)| boolean(options, name).map(drop))?;
    }
    if matches!(shown, CqlType::Vector { .. }) && part == IndexedPart::Value {
        return check_vectors(name, table, target, options);
    }
    if VECTOR_OPTIONS.iter().any(|name| options.contains_key(*name)) {
        return invalid(format!("CQL type {shown} cannot have vector options"));
    }
    Ok(())
}

/// Whether a storage-attached index takes values of the type.
fn is_ordered(indexed: &CqlType) -> bool {
    match indexed {
        CqlType::Blob | CqlType::Counter | CqlType::Duration | CqlType::Empty => false,
        frozen => !frozen.is_multi_cell(),
    }
}

fn is_text(indexed: &CqlType) -> bool {
    matches!(indexed, CqlType::Text | CqlType::Ascii)
}

/// A boolean option, if given.
fn boolean(options: &Options, name: &str) -> Result<Option<bool>> {
    match options.get(name).map(String::as_str) {
        None => Ok(None),
        Some("") => invalid(format!("Empty value for boolean option '{name}'")),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(value) => invalid(format!("Illegal value for boolean option '{name}': {value}")),
    }
}

fn check_sasi(target: Target<'_>, options: &Options) -> Result<()> {
    refuse_unknown(options, "SASIIndex", |name| SASI_OPTIONS.contains(&name))?;
    let column = target.column;
    if column.column_type.is_multi_cell() {
        return configuration("complex columns are not yet supported by SASI");
    }
    if column.is_partition_key() {
        return configuration("partition key columns are not yet supported by SASI");
    }
    boolean(options, "case_sensitive")?;
    let is_analyzed = check_analyzer(&column.column_type, options)?;
    check_mode(&column.column_type, options, is_analyzed)
}

/// Checks the analyzer of a SASI index on this type. Returns whether it has one.
fn check_analyzer(indexed: &CqlType, options: &Options) -> Result<bool> {
    let analyzed = boolean(options, "analyzed")?;
    let Some(class) = options.get("analyzer_class") else {
        // Without a class Cassandra would take this one.
        return if analyzed == Some(true) { unsupported_analyzer("StandardAnalyzer") } else { Ok(false) };
    };
    match class.strip_prefix(ANALYZERS) {
        Some(NON_TOKENIZING) => {}
        Some(name) if OTHER_ANALYZERS.contains(&name) => return unsupported_analyzer(name),
        _ => return configuration(format!("Invalid analyzer class option specified [{class}]")),
    }
    if !is_text(indexed) {
        return configuration(format!("{NON_TOKENIZING} does not support type {indexed}"));
    }
    if analyzed == Some(false) {
        return configuration(
            "The option analyzer_class cannot be combined with analyzed = false in Helenus",
        );
    }
    Ok(true)
}

fn unsupported_analyzer(name: &str) -> Result<bool> {
    configuration(format!("The analyzer {name} of SASI indexes is not supported by Helenus yet"))
}

fn check_mode(indexed: &CqlType, options: &Options, is_analyzed: bool) -> Result<()> {
    let Some(mode) = options.get("mode") else { return Ok(()) };
    match mode.to_uppercase().as_str() {
        "PREFIX" | "CONTAINS" => Ok(()),
        "SPARSE" if is_text(indexed) => {
            configuration("SPARSE mode is only supported on non-literal columns.")
        }
        "SPARSE" if is_analyzed => configuration("SPARSE mode doesn't support analyzers."),
        "SPARSE" => configuration("The mode SPARSE of SASI indexes is not supported by Helenus yet"),
        _ => configuration(format!("Incorrect index mode: {mode}")),
    }
}
