//! Guardrails: limits that an operator sets for what clients may ask, with Cassandra 5.0's names, meanings, defaults and texts.
//!
//! One table ([`Guardrails`]) names them all. Each is checked in one place: those of modifications in `modification`, of reads in
//! `selection`, of schema changes in `schema`. A check adds warnings for the client, or refuses the request. Whether any
//! guardrail is set is known at once, so requests without one cost a branch.
//!
//! They hold for every client but superusers. DIFFERS: in Cassandra they hold for nobody where clients do not log in.
//! Those of partitions do not refuse anything: what is too large is logged when files are written. Cassandra looks at collections once
//! more then; here only statements count, and compactions warn of large rows.

mod kinds;
mod modification;
mod schema;
mod selection;

use std::ops::Deref;

pub use self::kinds::{Bound, Flag, Threshold, Values, is_violation};

/// The table: the name of each guardrail in settings and messages, and its text. `{what}`, `{value}` and `{threshold}` stand for
/// the thing that is checked, its size, and the limit that it violates.
macro_rules! guardrails {
    (
        thresholds { $($threshold:ident $(is $bound:ident)?: $warning:literal, $failure:literal $(because $why:literal)?;)+ }
        flags { $($flag:ident ($flag_name:literal): $feature:literal $(because $reason:literal)?;)+ }
        values { $($values:ident: $what:literal;)+ }
    ) => {
        /// All guardrails of a node. None is set by default but the warnings that Cassandra has by default.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Guardrails {
            $(pub $threshold: Threshold,)+
            $(pub $flag: Flag,)+
            $(pub $values: Values,)+
        }

        impl Default for Guardrails {
            fn default() -> Self {
                Self {
                    $($threshold: Threshold::new(
                        stringify!($threshold),
                        [$warning, $failure],
                        concat!("" $(, $why)?),
                        [$(Bound::$bound,)? Bound::AtMost][0],
                    ),)+
                    $($flag: Flag::new($flag_name, stringify!($flag), $feature, concat!("" $(, $reason)?)),)+
                    $($values: Values::new(stringify!($values), $what),)+
                }
            }
        }

        impl Guardrails {
            pub fn thresholds_mut(&mut self) -> impl Iterator<Item = &mut Threshold> {
                [$(&mut self.$threshold),+].into_iter()
            }

            pub fn flags_mut(&mut self) -> impl Iterator<Item = &mut Flag> {
                [$(&mut self.$flag),+].into_iter()
            }

            pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Values> {
                [$(&mut self.$values),+].into_iter()
            }
        }
    };
}

/// The guardrails of a running node, with what every request asks of them. They change as a whole.
#[derive(Debug, Clone)]
pub struct NodeGuardrails {
    guardrails: Guardrails,
    guards_selects: bool,
    guards_modifications: bool,
}

impl From<Guardrails> for NodeGuardrails {
    fn from(guardrails: Guardrails) -> Self {
        let (guards_selects, guards_modifications) =
            (guardrails.any_of_selects(), guardrails.any_of_modifications());
        Self { guardrails, guards_selects, guards_modifications }
    }
}

impl Deref for NodeGuardrails {
    type Target = Guardrails;

    fn deref(&self) -> &Guardrails {
        &self.guardrails
    }
}

impl NodeGuardrails {
    /// Whether any guardrail concerns SELECT.
    #[inline]
    pub fn guards_selects(&self) -> bool {
        self.guards_selects
    }

    /// Whether any guardrail concerns INSERT, UPDATE, DELETE and batches.
    #[inline]
    pub fn guards_modifications(&self) -> bool {
        self.guards_modifications
    }
}

guardrails! {
    thresholds {
        keyspaces:
            "Creating keyspace {what}, current number of keyspaces {value} exceeds warning threshold of {threshold}.",
            "Cannot have more than {threshold} keyspaces, aborting the creation of keyspace {what}";
        tables:
            "Creating table {what}, current number of tables {value} exceeds warning threshold of {threshold}.",
            "Cannot have more than {threshold} tables, aborting the creation of table {what}";
        columns_per_table:
            "The table {what} has {value} columns, this exceeds the warning threshold of {threshold}.",
            "Tables cannot have more than {threshold} columns, but {value} provided for table {what}";
        secondary_indexes_per_table:
            "Creating secondary index {what}, current number of indexes {value} exceeds warning threshold of {threshold}.",
            "Tables cannot have more than {threshold} secondary indexes, aborting the creation of secondary index {what}";
        materialized_views_per_table:
            "Creating materialized view {what}, current number of views {value} exceeds warning threshold of {threshold}.",
            "Tables cannot have more than {threshold} materialized views, aborting the creation of materialized view {what}";
        fields_per_udt:
            "The user type {what} has {value} columns, this exceeds the warning threshold of {threshold}.",
            "User types cannot have more than {threshold} columns, but {value} provided for user type {what}.";
        vector_dimensions:
            "{what} has a vector of {value} dimensions, this exceeds the warning threshold of {threshold}.",
            "{what} has a vector of {value} dimensions, this exceeds the failure threshold of {threshold}.";
        minimum_replication_factor is AtLeast:
            "The keyspace {what} has a replication factor of {value}, below the warning threshold of {threshold}.",
            "The keyspace {what} has a replication factor of {value}, below the failure threshold of {threshold}.";
        maximum_replication_factor:
            "The keyspace {what} has a replication factor of {value}, above the warning threshold of {threshold}.",
            "The keyspace {what} has a replication factor of {value}, above the failure threshold of {threshold}.";
        page_size:
            "Query for table {what} with page size {value} exceeds warning threshold of {threshold}.",
            "Aborting query for table {what}, page size {value} exceeds fail threshold of {threshold}.";
        partition_keys_in_select:
            "Query with partition keys in IN clause on table {what}, with number of partition keys {value} exceeds warning threshold of {threshold}.",
            "Aborting query with partition keys in IN clause on table {what}, number of partition keys {value} exceeds fail threshold of {threshold}.";
        in_select_cartesian_product:
            "The cartesian product of the IN restrictions on {what} produces {value} values, this exceeds warning threshold of {threshold}.",
            "Aborting query because the cartesian product of the IN restrictions on {what} produces {value} values, this exceeds fail threshold of {threshold}.";
        partition_size:
            "Partition {what} has size {value}, this exceeds the warning threshold of {threshold}.",
            "Partition {what} has size {value}, this exceeds the failure threshold of {threshold}."
            because "Too large partitions can cause performance problems.";
        partition_tombstones:
            "Partition {what} has {value} tombstones, this exceeds the warning threshold of {threshold}.",
            "Partition {what} has {value} tombstones, this exceeds the failure threshold of {threshold}."
            because "Partitions with too many tombstones can cause performance problems.";
        column_value_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        collection_size:
            "Detected collection {what} of size {value}, this exceeds the warning threshold of {threshold}.",
            "Detected collection {what} of size {value}, this exceeds the failure threshold of {threshold}.";
        column_ascii_value_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        column_blob_value_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        column_text_value_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        column_varchar_value_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        collection_map_size:
            "Detected collection {what} of size {value}, this exceeds the warning threshold of {threshold}.",
            "Detected collection {what} of size {value}, this exceeds the failure threshold of {threshold}.";
        collection_set_size:
            "Detected collection {what} of size {value}, this exceeds the warning threshold of {threshold}.",
            "Detected collection {what} of size {value}, this exceeds the failure threshold of {threshold}.";
        collection_list_size:
            "Detected collection {what} of size {value}, this exceeds the warning threshold of {threshold}.",
            "Detected collection {what} of size {value}, this exceeds the failure threshold of {threshold}.";
        sai_sstable_indexes_per_query:
            "The number of SSTable indexes queried on index {what} violated warning threshold value {threshold} with value {value}",
            "The number of SSTable indexes queried on index {what} violated failure threshold value {threshold} with value {value}"
            because "High number of referenced indexes per query may negatively effect performance";
        sai_string_term_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        sai_frozen_term_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        sai_vector_term_size:
            "Value of column '{what}' has size {value}, this exceeds the warning threshold of {threshold}.",
            "Value of column '{what}' has size {value}, this exceeds the failure threshold of {threshold}.";
        maximum_timestamp is After:
            "The modification to table {what} has a timestamp {value} after the maximum allowable warning threshold {threshold}",
            "The modification to table {what} has a timestamp {value} after the maximum allowable failure threshold {threshold}"
            because "Timestamps too far in the future can lead to data that can't be easily overwritten";
        minimum_timestamp is Before:
            "The modification to table {what} has a timestamp {value} before the minimum allowable warning threshold {threshold}",
            "The modification to table {what} has a timestamp {value} before the minimum allowable failure threshold {threshold}"
            because "Timestamps too far in the past can cause writes can be unexpectedly lost";
        items_per_collection:
            "Detected collection {what} with {value} items, this exceeds the warning threshold of {threshold}.",
            "Detected collection {what} with {value} items, this exceeds the failure threshold of {threshold}.";
    }
    flags {
        user_timestamps ("user_timestamps"): "User provided timestamps (USING TIMESTAMP)";
        group_by ("group_by"): "GROUP BY functionality";
        alter_table ("alter_table"): "ALTER TABLE changing columns";
        ddl ("ddl_enabled"): "DDL statement";
        drop_truncate_table ("drop_truncate_table_enabled"):
            "DROP and TRUNCATE TABLE functionality";
        drop_keyspace ("drop_keyspace_enabled"): "DROP KEYSPACE functionality";
        secondary_indexes ("secondary_indexes"): "Creating secondary indexes";
        uncompressed_tables ("uncompressed_tables_enabled"): "Uncompressed table";
        compact_tables ("compact_tables"): "Creation of new COMPACT STORAGE tables";
        read_before_write_list_operations
            ("read_before_write_list_operations"):
            "List operation requiring read before write";
        allow_filtering ("allow_filtering"): "Querying with ALLOW FILTERING"
            because "ALLOW FILTERING can potentially visit all the data in the table and have unpredictable performance.";
        simplestrategy ("simplestrategy"): "SimpleStrategy";
        vector_type ("vector_type"): "Vectors";
        non_partition_restricted_index_query ("non_partition_restricted_index_query_enabled"):
            "Non-partition key restricted query"
            because "Executing a query on secondary indexes without partition key restriction might degrade performance";
        intersect_filtering_query ("intersect_filtering_query"):
            "Filtering query with intersection on mutable columns at consistency level requiring coordinator reconciliation"
            because "Filtering queries involving an intersection on multiple mutable (i.e. non-key) columns over unrepaired data at read consistency levels that would require coordinator reconciliation may violate the guarantees of those consistency levels.";
        zero_ttl_on_twcs ("zero_ttl_on_twcs"):
            "0 default_time_to_live on a table with TimeWindowCompactionStrategy compaction strategy"
            because "It is suspicious to use default_time_to_live set to 0 with such compaction strategy. Please keep in mind that data will not start to automatically expire after they are older than a respective compaction window unit of a certain size. Please set TTL for your INSERT or UPDATE statements if you expect data to be expired as table settings will not do it. ";
    }
    values {
        table_properties: "Table Properties";
        read_consistency_levels: "read consistency levels";
        write_consistency_levels: "write consistency levels";
    }
}

#[cfg(test)]
mod tests;
