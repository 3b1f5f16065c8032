//! Guardrails: what operators set for clients, with the names of Cassandra.
//!
//! Rows of the table in [`super`], in the order of `helenus.toml`.

macro_rules! guardrails_settings {
    ([$next:ident $($others:ident)*] $($before:tt)*) => {
        $next! { [$($others)*] $($before)*

        section "Guardrails" "What operators of a cluster may set for its clients, with Cassandra's names. -1 turns a number off, and so does no size.";
        /// Keyspaces, apart from those of the system, above which CREATE KEYSPACE brings a warning.
        keyspaces_warn_threshold: i64 = -1;
        /// The same for an error.
        keyspaces_fail_threshold: i64 = -1;
        /// Tables of all keyspaces, apart from those of the system, above which CREATE TABLE brings a warning.
        tables_warn_threshold: i64 = -1;
        /// The same for an error.
        tables_fail_threshold: i64 = -1;
        /// Columns of one table above which CREATE TABLE and ALTER TABLE ADD bring a warning.
        columns_per_table_warn_threshold: i64 = -1;
        /// The same for an error.
        columns_per_table_fail_threshold: i64 = -1;
        /// Indexes of one table above which CREATE INDEX brings a warning.
        secondary_indexes_per_table_warn_threshold: i64 = -1;
        /// The same for an error.
        secondary_indexes_per_table_fail_threshold: i64 = -1;
        /// Materialized views and projections of one table above which their CREATE brings a warning.
        materialized_views_per_table_warn_threshold: i64 = -1;
        /// The same for an error.
        materialized_views_per_table_fail_threshold: i64 = -1;
        /// Fields of one user-defined type above which CREATE TYPE and ALTER TYPE bring a warning.
        fields_per_udt_warn_threshold: i64 = -1;
        /// The same for an error.
        fields_per_udt_fail_threshold: i64 = -1;
        /// Dimensions of a vector above which a column or field of that type brings a warning.
        vector_dimensions_warn_threshold: i64 = -1;
        /// The same for an error.
        vector_dimensions_fail_threshold: i64 = -1;
        /// Replication factor of a keyspace below which CREATE and ALTER KEYSPACE bring a warning.
        minimum_replication_factor_warn_threshold: i64 = -1;
        /// The same for an error.
        minimum_replication_factor_fail_threshold: i64 = -1;
        /// Replication factor of a keyspace above which CREATE and ALTER KEYSPACE bring a warning.
        maximum_replication_factor_warn_threshold: i64 = -1;
        /// The same for an error.
        maximum_replication_factor_fail_threshold: i64 = -1;
        /// Rows of a page above which a SELECT brings a warning.
        page_size_warn_threshold: i64 = -1;
        /// The same for an error.
        page_size_fail_threshold: i64 = -1;
        /// Partition keys that an IN names above which a SELECT brings a warning.
        partition_keys_in_select_warn_threshold: i64 = -1;
        /// The same for an error.
        partition_keys_in_select_fail_threshold: i64 = -1;
        /// Combinations of the values of several IN above which a SELECT brings a warning.
        in_select_cartesian_product_warn_threshold: i64 = -1;
        /// The same for an error.
        in_select_cartesian_product_fail_threshold: i64 = -1;
        /// Bytes of one value (of a collection: of one element) above which a write brings a warning.
        column_value_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(256 << 10));
        /// The same for an error.
        column_value_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of a partition, before compression, above which a file that gets it (from a flush or compaction) is logged as a warning.
        partition_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(100 << 20));
        /// The same for an error in the log. Nothing is refused.
        partition_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 30));
        /// Tombstones of a partition above which a file that gets them is logged as a warning.
        partition_tombstones_warn_threshold: i64 = -1;
        /// The same for an error in the log. Nothing is refused.
        partition_tombstones_fail_threshold: i64 = -1;
        /// Bytes of the collection that a statement writes above which it brings a warning.
        collection_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 20));
        /// The same for an error.
        collection_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of a value of type ascii above which a write brings a warning. Cassandra 6's.
        column_ascii_value_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(256 << 10));
        /// The same for an error.
        column_ascii_value_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of a value of type blob above which a write brings a warning. Cassandra 6's.
        column_blob_value_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(256 << 10));
        /// The same for an error.
        column_blob_value_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of a value of type text (or varchar, which is the same) above which a write brings a warning. Cassandra 6's.
        column_text_value_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(256 << 10));
        /// The same for an error.
        column_text_value_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of a value of type varchar (or text, which is the same) above which a write brings a warning. Cassandra 6's.
        column_varchar_value_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(256 << 10));
        /// The same for an error.
        column_varchar_value_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of the map that a statement writes above which it brings a warning. Cassandra 6's.
        collection_map_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 20));
        /// The same for an error.
        collection_map_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of the set that a statement writes above which it brings a warning. Cassandra 6's.
        collection_set_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 20));
        /// The same for an error.
        collection_set_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Bytes of the list that a statement writes above which it brings a warning. Cassandra 6's.
        collection_list_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 20));
        /// The same for an error.
        collection_list_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 20));
        /// Files of indexes that a search asks on one shard above which the replica logs a warning.
        sai_sstable_indexes_per_query_warn_threshold: i64 = 32;
        /// The same for an error: the replica does not answer the search.
        sai_sstable_indexes_per_query_fail_threshold: i64 = -1;
        /// Bytes of a value, or of an element, in a column with a storage-attached index above which a write brings a warning.
        sai_string_term_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 10));
        /// The same for an error.
        sai_string_term_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 10));
        /// Bytes of a frozen collection, tuple or user-defined type with a storage-attached index above which a write brings a warning.
        sai_frozen_term_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 10));
        /// The same for an error.
        sai_frozen_term_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(8 << 10));
        /// Bytes of a vector with a storage-attached index above which a write brings a warning.
        sai_vector_term_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(16 << 10));
        /// The same for an error.
        sai_vector_term_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(32 << 10));
        /// How far in the future the timestamp of a statement (USING TIMESTAMP) may be; further, it brings a warning.
        maximum_timestamp_warn_threshold: Option<Period> = None,
            example Some(Period::from_days(1));
        /// The same for an error.
        maximum_timestamp_fail_threshold: Option<Period> = None,
            example Some(Period::from_days(2));
        /// How far in the past the timestamp of a statement (USING TIMESTAMP) may be; further, it brings a warning.
        minimum_timestamp_warn_threshold: Option<Period> = None,
            example Some(Period::from_days(1));
        /// The same for an error.
        minimum_timestamp_fail_threshold: Option<Period> = None,
            example Some(Period::from_days(30));
        /// Items of the collection that a statement writes above which it brings a warning.
        items_per_collection_warn_threshold: i64 = -1;
        /// The same for an error.
        items_per_collection_fail_threshold: i64 = -1;
        /// Whether statements may give timestamps (USING TIMESTAMP).
        user_timestamps_enabled: bool = true;
        /// Whether SELECT may have GROUP BY.
        group_by_enabled: bool = true;
        /// Whether SELECT may have ALLOW FILTERING.
        allow_filtering_enabled: bool = true;
        /// Whether elements of lists may be set by index, or removed by index or value, which reads before it writes.
        read_before_write_list_operations_enabled: bool = true;
        /// Whether ALTER TABLE may add, drop and rename columns.
        alter_table_enabled: bool = true;
        /// Whether statements may change the schema at all.
        ddl_enabled: bool = true;
        /// Whether DROP TABLE and TRUNCATE are allowed.
        drop_truncate_table_enabled: bool = true;
        /// Whether DROP KEYSPACE is allowed.
        drop_keyspace_enabled: bool = true;
        /// Whether CREATE INDEX is allowed.
        secondary_indexes_enabled: bool = true;
        /// Whether statements may turn the compression of a table off.
        uncompressed_tables_enabled: bool = true;
        /// Whether CREATE TABLE may have COMPACT STORAGE.
        compact_tables_enabled: bool = true;
        /// Whether columns and fields may be vectors.
        vector_type_enabled: bool = true;
        /// Whether SELECT may find rows by an index without naming their partitions.
        non_partition_restricted_index_query_enabled: bool = true;
        /// Whether SELECT may filter by several columns that are not of the key where it puts the answers of several replicas together.
        intersect_filtering_query_enabled: bool = true;
        /// Whether that brings a warning where it is allowed. Cassandra's default is true: there such a SELECT may miss rows. Here it does not.
        intersect_filtering_query_warned: bool = false;
        /// Whether keyspaces may have `SimpleStrategy`.
        simplestrategy_enabled: bool = true;
        /// Whether a table with `TimeWindowCompactionStrategy` may have a `default_time_to_live` of 0.
        zero_ttl_on_twcs_enabled: bool = true;
        /// Whether that brings a warning where it is allowed.
        zero_ttl_on_twcs_warned: bool = true;
        /// Properties of tables (compaction, `gc_grace_seconds`, ...) that bring a warning where CREATE or ALTER TABLE sets them.
        table_properties_warned: Vec<String> = Vec::new();
        /// Properties of tables that are left out, with a warning.
        table_properties_ignored: Vec<String> = Vec::new();
        /// Properties of tables that are refused.
        table_properties_disallowed: Vec<String> = Vec::new();
        /// Consistency levels that bring a warning in reads.
        read_consistency_levels_warned: Vec<String> = Vec::new();
        /// Consistency levels that are refused in reads.
        read_consistency_levels_disallowed: Vec<String> = Vec::new();
        /// Consistency levels that bring a warning in writes.
        write_consistency_levels_warned: Vec<String> = Vec::new();
        /// Consistency levels that are refused in writes.
        write_consistency_levels_disallowed: Vec<String> = Vec::new();
        }
    };
}
