//! Settings about clients: roles and logins, limits, and partitions that nobody may use.
//!
//! Rows of the table in [`super`], in the order of `helenus.toml`.

macro_rules! clients_settings {
    ([$next:ident $($others:ident)*] $($before:tt)*) => {
        $next! { [$($others)*] $($before)*

        section "Roles and logins" "Names of classes are Cassandra's, with or without their package.";
        /// How clients log in.
        /// * `"AllowAllAuthenticator"`: not at all; everybody is in.
        /// * `"PasswordAuthenticator"`: with the name of a role and its password.
        /// * `"MutualTlsAuthenticator"`: with a certificate whose identity belongs to a role (`ADD IDENTITY`).
        /// * `"MutualTlsWithPasswordFallbackAuthenticator"`: with such a certificate, or without one with a password.
        authenticator: Authenticator = Authenticator::AllowAllAuthenticator;
        /// Whether statements need permissions: `"AllowAllAuthorizer"` (none) or `"CassandraAuthorizer"` (those that were granted to the
        /// role of the client; needs an authenticator that asks for a login).
        authorizer: Authorizer = Authorizer::AllowAllAuthorizer;
        /// Where roles are kept. They are a part of the cluster's metadata, so that every node has them; there is no other choice.
        role_manager: RoleManager = RoleManager::CassandraRoleManager;
        /// Whether roles are bound to data centers: `"AllowAllNetworkAuthorizer"` (no) or `"CassandraNetworkAuthorizer"` (to those of
        /// `ACCESS TO DATACENTERS`; needs an authenticator that asks for a login).
        network_authorizer: NetworkAuthorizer = NetworkAuthorizer::AllowAllNetworkAuthorizer;
        /// Whether roles are bound to addresses of clients: `"AllowAllCIDRAuthorizer"` (no) or `"CassandraCIDRAuthorizer"` (to those of
        /// the groups of `ACCESS FROM CIDRS`; needs an authenticator that asks for a login).
        cidr_authorizer: CidrAuthorizer = CidrAuthorizer::AllowAllCIDRAuthorizer;
        /// What becomes of a login from an address that the role may not come from: `"MONITOR"` (it is logged) or `"ENFORCE"` (it is refused).
        cidr_authorizer_mode: CidrAuthorizerMode = CidrAuthorizerMode::Monitor;
        /// Whether superusers are bound to addresses as well.
        cidr_checks_for_superusers: bool = true;
        /// How long a verified password is remembered, as a keyed digest, so that further connections of the same client cost no hash. A
        /// change of the password is seen at once in any case. 0: never.
        credentials_validity_ms: u64 = 2_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour").or_zero(),
            cassandra Alias::Milliseconds("credentials_validity");
        /// A node that could not confirm for this long that it knows the newest roles refuses its clients, until it can: so what was revoked is revoked
        /// everywhere within this time, also on nodes that are cut off from the others. 0: it goes on with the roles that it knows. Only with an
        /// authenticator that asks for a login.
        unconfirmed_roles_limit_ms: u64 = 600_000,
            unit Milliseconds,
            range Range::from_to(10_000, 2_592_000_000).that_is("30 days").or_zero();
        /// How long a client may take to log in; then its connection is closed. Only with an authenticator that asks for a login.
        login_timeout_ms: u64 = 15_000,
            unit Milliseconds,
            range Range::from_to(100, 3_600_000).that_is("an hour");
        /// Most connections that have not logged in yet. For one more, the oldest one of the address that has the most of them is closed.
        /// Default: a quarter of `max_connections`. Only with an authenticator that asks for a login.
        max_connections_before_login: Option<usize> = None,
            range Range::at_least(1),
            example Some(1_000);

        section "Limits for clients" "Over a limit the client gets an error; the node goes on.";
        /// Largest request frame. Above it: an error; the frame is skipped as it arrives.
        max_frame_bytes: u32 = 256 << 20,
            unit Bytes,
            range Range::at_least(64 * KIB),
            cassandra Alias::Scaled("native_transport_max_frame_size_in_mb", MIB);
        /// Memory for frames above 64 KiB of all clients that are not in whole yet. One for which there is no room is answered with
        /// OVERLOADED and skipped as it arrives. At least `max_frame_bytes`.
        max_partial_frames_bytes: u64 = 512 << 20,
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Longest text of a statement.
        max_statement_bytes: usize = 16 << 20,
            unit Bytes,
            range Range::at_least(KIB);
        /// Most statements of a BATCH message.
        max_batch_statements: usize = 65_535,
            range Range::at_least(1);
        /// Bytes of the changes of a batch of several partitions above which its client gets a warning. Where rows must be read first
        /// (counters, lists changed by index or value) the bytes of the bound values count. A batch of one partition is bounded by
        /// `max_mutation_size` alone.
        batch_size_warn_threshold_bytes: usize = 5 << 10,
            unit Bytes,
            cassandra Alias::Scaled("batch_size_warn_threshold_in_kb", KIB);
        /// Such bytes above which the batch is refused ("Batch too large"). Not below `batch_size_warn_threshold_bytes`.
        batch_size_fail_threshold_bytes: usize = 50 << 10,
            unit Bytes,
            cassandra Alias::Scaled("batch_size_fail_threshold_in_kb", KIB);
        /// Partitions of a batch that is not logged above which its client gets a warning.
        unlogged_batch_across_partitions_warn_threshold: usize = 10;
        /// Most connections at a time. Further ones end with OVERLOADED as the answer to their first request, or at once if many come.
        max_connections: usize = 10_000,
            range Range::at_least(1),
            cassandra Alias::Same("native_transport_max_concurrent_connections");
        /// Most connections of one address at a time, refused alike. 0: no limit.
        max_connections_per_address: usize = 0,
            cassandra Alias::Same("native_transport_max_concurrent_connections_per_ip");
        /// Most requests of one connection that are carried out at a time; meanwhile no more are read from it.
        max_requests_per_connection: usize = 256,
            range Range::at_least(1);
        /// Requests a second that each role may make of this node; as many may come at once. Clients that have not logged in count as one
        /// role. More are refused: with `RATE_LIMIT_ERROR` for clients that have negotiated it, else OVERLOADED. 0: no limit.
        role_requests_per_second_max: u64 = 0,
            range Range::from_to(1, 1_000_000_000).or_zero();
        /// While roles want more than a shard has, each gets the same time of its thread, or as much as its shares say (`OPTIONS` of a role).
        /// Clients that have not logged in have no share.
        fair_shares_enabled: bool = true;
        /// A request that takes longer is counted, and logged (a few a second on each shard) with its statement without values. 0: none.
        slow_query_log_timeout_ms: u64 = 500,
            unit Milliseconds,
            cassandra Alias::Same("slow_query_log_timeout_in_ms");
        /// Reads or writes of one partition a second, on the average of five minutes and on the shard that has it, above which the partition's key is
        /// logged as a warning. 0: none is.
        hot_partition_warn_requests_per_second: u64 = 10_000;
        /// A read that passes more deleted and expired rows and cells for a page brings a warning. One within a partition is logged as well with the
        /// partition's key, once in five minutes. 0: none is.
        tombstone_warn_threshold: u64 = 1_000,
            cassandra Alias::Same("tombstone_warn_threshold");
        /// A read that passes more of them for a page fails. 0: none does. Beyond `max_page_tombstones` only answers without pages come to it.
        tombstone_failure_threshold: u64 = 0,
            cassandra Alias::Same("tombstone_failure_threshold");
        /// Whether the sizes of reads are held to the four settings below.
        read_thresholds_enabled: bool = false;
        /// Bytes of the rows of a page, or of an answer without pages, above which it brings a warning.
        coordinator_read_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(1 << 20));
        /// The same for an error.
        coordinator_read_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(4 << 20));
        /// Bytes of the rows that are read for a page, also of those that are in no answer, above which it brings a warning.
        local_read_size_warn_threshold: Option<DataSize> = None,
            example Some(DataSize(4 << 20));
        /// The same for an error.
        local_read_size_fail_threshold: Option<DataSize> = None,
            example Some(DataSize(16 << 20));
        /// Rows of a page for clients that name no page size. 0: such a client gets its whole answer at once.
        default_page_rows: u32 = 0;
        /// A page ends early, with a cursor for the next, when it has this many bytes ...
        max_page_bytes: usize = 8 << 20,
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// ... or when this many tombstones were passed for it.
        max_page_tombstones: usize = 100_000,
            range Range::at_least(1_000);
        /// Largest answer without pages. A request for more is refused when it has read as much.
        max_answer_bytes: usize = 256 << 20,
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Whether clients may execute USE. Prepared statements without a keyspace in their names mean another table after it.
        use_statements_enabled: bool = true;
        /// Whether ALTER TABLE may drop COMPACT STORAGE.
        drop_compact_storage_enabled: bool = false;

        section "Partition denylist" "Partitions that clients may not use (`helenus admin denylist`). All nodes have one list, and each coordinator obeys it or not.";
        /// Whether requests of clients for partitions of the list are refused.
        partition_denylist_enabled: bool = false;
        /// Of these, writes: also batches, counters and transactions with one such partition.
        denylist_writes_enabled: bool = true;
        /// Of these, reads that name one such partition.
        denylist_reads_enabled: bool = true;
        /// Of these, reads of ranges of tokens that have one such partition; also by an index, and of a whole table.
        denylist_range_reads_enabled: bool = true;
        /// Most partitions of one table that the node puts on the list.
        denylist_max_keys_per_table: u64 = 1_000,
            range Range::at_least(1);
        /// Most partitions of all tables that the node puts on the list.
        denylist_max_keys_total: u64 = 10_000,
            range Range::at_least(1);
        }
    };
}
