//! Settings of the node itself: where its data and ports are, its disks, its memory, and the other nodes.
//!
//! Rows of the table in [`super`], in the order of `helenus.toml`.

macro_rules! node_settings {
    ([$next:ident $($others:ident)*] $($before:tt)*) => {
        $next! { [$($others)*] $($before)*

        section "Where";
        /// The directory of all data, made if missing. A second process cannot open it.
        data_dir: PathBuf = PathBuf::from("helenus-data"),
            flags "--data-dir, HELENUS_DATA_DIR";
        /// Directories for table files, made if missing, each on a disk of its own. A file goes where the most space is free. Default: in
        /// `data_dir`, which holds everything else in any case. Files stay where they are until a compaction rewrites them, so a
        /// directory that is left out is still needed until it is empty; a node that does not find one with files does not start.
        data_dirs: Vec<PathBuf> = Vec::new(),
            cassandra Alias::Same("data_file_directories");
        /// A directory for the commit log, made if missing, on another disk than `data_dir` for example. Default: in `data_dir`. To
        /// change it, stop the node and move `shard-N/commit-log` to `shard-N` in the new directory; a node that does not find its
        /// log does not start.
        commit_log_dir: Option<PathBuf> = None,
            cassandra Alias::Same("commitlog_directory"),
            example Some(PathBuf::from("helenus-commit-log"));
        /// Address and port for CQL clients. Port 0 picks a free one (the node prints it). Drivers are told this address unless
        /// `broadcast_rpc_address` is set. 0.0.0.0 or `[::]` (all addresses of the machine) need `broadcast_rpc_address`, or an address in
        /// `internode` or `broadcast_address` that clients reach too.
        listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9042),
            cassandra Alias::Port("native_transport_port"),
            flags "--listen, HELENUS_LISTEN";
        /// Address, or host name, by which clients reach this node, where it is not that of `listen`. Drivers get it in `system.local`,
        /// `system.peers` and events, with the port of `listen`. A name is looked up at the start.
        broadcast_rpc_address: Option<Host> = None,
            flags "--broadcast-rpc-address, HELENUS_BROADCAST_RPC_ADDRESS",
            example Some(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        /// Port, on the same address, on which the source port of a client chooses the shard that serves it (shard-aware drivers
        /// learn it from the node). 0 picks a free one. Default: the port of `listen` plus 10000; a free one if that is not a port
        /// or `listen` has port 0.
        shard_aware_port: Option<u16> = None,
            flags "--shard-aware-port, HELENUS_SHARD_AWARE_PORT",
            example Some(19042);
        /// Shards, each a thread with its part of the data. Default: one a core, decided when the data directory is
        /// made; later starts take the number from there and refuse another.
        shards: Option<usize> = None,
            range Range::from_to(1, 256),
            flags "--shards, HELENUS_SHARDS",
            example Some(2);
        /// Port for metrics, health and administration over HTTP, on 127.0.0.1 only. Port 0 picks a free one (logged at start). Default: 9180,
        /// on the address of `listen` where that is a loopback address; if it is taken, the node starts without it and says so.
        http_port: Option<u16> = None,
            flags "--http-port, HELENUS_HTTP_PORT",
            example Some(DEFAULT_HTTP_PORT);
        /// Address and port for the same in place of `http_port`. One that is not a loopback address needs `admin_encryption` with mode "required",
        /// and an `authenticator` that asks for logins: who administers over the network uses TLS and logs in as a role. Default: `http_port`.
        http_listen: Option<SocketAddr> = None,
            flags "--http-listen, HELENUS_HTTP_LISTEN",
            example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), DEFAULT_HTTP_PORT));
        /// Whether that port is served.
        http_enabled: bool = true,
            flags "--no-http, HELENUS_NO_HTTP=true";
        /// The Unix socket for administration, which only the user of the node may use. Default: `helenus.sock` in `data_dir`, where
        /// `helenus admin` finds it; if it cannot be made there, the node starts without it and says so. Empty: none.
        admin_socket: Option<PathBuf> = None,
            flags "--admin-socket, HELENUS_ADMIN_SOCKET",
            example Some(PathBuf::from("/run/helenus/helenus.sock"));
        /// Address and port for a Prometheus on another machine: metrics and health over HTTP, and nothing else. Everybody who reaches it may
        /// read them. Default: none.
        metrics_listen: Option<SocketAddr> = None,
            flags "--metrics-listen, HELENUS_METRICS_LISTEN",
            example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9181));

        section "Durability";
        /// When a write is acknowledged.
        /// * "group": when it is on disk (`fdatasync`); writes that arrive meanwhile share the next sync.
        /// * "batch": when it is on disk; a sync starts at once for each.
        /// * "periodic": at once; the log is synced every `commit_log_sync_period_ms`. A killed process loses nothing that the
        ///   operating system has; a machine that loses power loses up to that period.
        commit_log: CommitLogMode = CommitLogMode::Group,
            cassandra Alias::Same("commitlog_sync"),
            flags "--commit-log, HELENUS_COMMIT_LOG";
        /// How long a "periodic" commit log may go without a sync. Above 0.
        commit_log_sync_period_ms: u64 = 10_000,
            unit Milliseconds,
            cassandra Alias::Same("commitlog_sync_period_in_ms");
        /// Size of one commit-log segment. Above 64 MiB `max_mutation_size` must be set.
        commit_log_segment_bytes: u64 = 32 << 20,
            unit Bytes,
            range Range::from_to(MIB, GIB),
            cassandra Alias::Scaled("commitlog_segment_size_in_mb", MIB);
        /// The largest mutation: all changes of one statement or batch to one partition. Default: half a commit-log segment, less 128 KiB
        /// for what hints and transactions store with it. At most 32640KiB. Larger ones are refused ("Rejected an oversized mutation").
        max_mutation_size: Option<DataSize> = None,
            unit Bytes,
            range Range::at_least(16 * KIB),
            example Some(DataSize(8 << 20));
        /// Size of the commit log of all shards above which the oldest memtables are flushed, so that segments become free. Shards lend each
        /// other what they do not use of it. At least four segments.
        commit_log_total_bytes: u64 = 2 << 30,
            unit Bytes,
            cassandra Alias::Scaled("commitlog_total_space_in_mb", MIB);

        section "Full and failing disks";
        /// Room on the disk that is kept free for what must go on when the disk is full: flushes, the metadata log, transactions that have
        /// begun. While less is free, writes are refused. 0: none. Default: `memtable_bytes` and one commit-log segment a shard, but at
        /// most a tenth of the disk.
        disk_reserve_bytes: Option<u64> = None,
            unit Bytes,
            example Some(512 << 20);
        /// Share of the disk, in percent, that the data may take before clients are warned. From 1 to 100; -1: no warning. The disk is
        /// what the data takes and what is free; memtables count as data. Measured every 30 seconds.
        data_disk_usage_percentage_warn_threshold: i32 = -1,
            cassandra Alias::Same("data_disk_usage_percentage_warn_threshold");
        /// Share above which writes are refused, by every node that coordinates a write for this one. From 1 to 100; -1: no limit.
        /// Not below the threshold of the warning.
        data_disk_usage_percentage_fail_threshold: i32 = -1,
            cassandra Alias::Same("data_disk_usage_percentage_fail_threshold");
        /// Size of the disk for these two shares, if it is less than what the data takes and what is free. Not more than the disk has.
        data_disk_usage_max_disk_size_bytes: Option<u64> = None,
            unit Bytes,
            range Range::at_least(1),
            cassandra Alias::Size("data_disk_usage_max_disk_size"),
            example Some(100 << 30);
        /// What the node does when a file of data cannot be read or written, or is damaged. The request or the compaction that meets
        /// it fails, whatever the policy.
        /// * `"best_effort"`: everything else goes on. A damaged range answers with an error, never with fewer rows.
        /// * `"stop"`: after an I/O error the node serves nothing more until it is restarted; damage of a file is as for `"best_effort"`.
        /// * `"stop_paranoid"`: so too when a file is damaged.
        /// * `"die"`: the process ends, in both cases.
        ///
        /// Cassandra's `"ignore"` is refused. Cassandra's default is `"stop"`.
        disk_failure_policy: DiskFailurePolicy = DiskFailurePolicy::BestEffort,
            cassandra Alias::Same("disk_failure_policy");
        /// What the node does when a write or sync of the commit log has failed. No write is accepted any more, whatever the policy.
        /// A full disk is no such failure: the node waits for room.
        /// * `"stop"`: a member of a cluster serves nothing more until it is restarted. A node that is alone goes on answering reads.
        /// * `"stop_commit"`: reads are answered, also in a cluster.
        /// * `"die"`: the process ends.
        ///
        /// Cassandra's `"ignore"` is refused.
        commit_failure_policy: CommitFailurePolicy = CommitFailurePolicy::Stop,
            cassandra Alias::Same("commit_failure_policy");
        section "Snapshots";
        /// Whether a snapshot of a table is taken before DROP TABLE, DROP KEYSPACE and TRUNCATE. It is named `dropped-` or `truncated-`, the time
        /// in milliseconds and the table, and keeps the disk space of the table's files until it is removed (`helenus admin clearsnapshot`).
        /// A table whose option `allow_auto_snapshot` is false, and an empty one, get none.
        auto_snapshot: bool = true;
        /// How long such a snapshot is kept, as a number with a unit: "30d", "12h", "90m", "60s". Default: until it is removed.
        auto_snapshot_ttl: Option<Period> = None,
            example Some(Period::from_days(30));
        /// Whether every file that a flush makes of a user's table is linked into `backups/<table id>` of the directory that it lies in. The node never
        /// removes anything there: copy the files away and remove them, for example after each snapshot.
        incremental_backups: bool = false;
        /// Whether a node removes the data of ranges that it has given up by itself, after a member has joined, or was to leave and stays. Until
        /// it has done so it gains no ranges, and members that would give it some cannot leave, because deleted rows would come back. Without it
        /// run `helenus admin cleanup` on each member.
        cleanup_after_transition: bool = true;
        /// A directory for copies of the commit log's segments, for restores to a point in time (`helenus admin replay`): each complete segment
        /// goes to `<host id>/shard-N` there. The directory must be there: a disk that is not mounted is not written to. The node never changes or
        /// removes a copy. While copies fail, segments stay in the log.
        commit_log_archive_dir: Option<PathBuf> = None,
            example Some(PathBuf::from("helenus-commit-log-archive"));

        section "Memory and background work" "Each is for the node as a whole. Shards lend each other what they do not use of memory, room and rates.";
        /// Memory for memtables. Flushing begins at half of it; writes wait when all of it is used.
        memtable_bytes: u64 = 256 << 20,
            unit Bytes,
            range Range::at_least(8 * MIB),
            flags "--memtable-bytes, HELENUS_MEMTABLE_BYTES";
        /// Memory for uncompressed blocks of tables, their filters and their indexes. Filters and indexes stay in memory while they take at most half
        /// of it, and are read in parts otherwise.
        block_cache_bytes: u64 = 256 << 20,
            unit Bytes,
            range Range::at_least(MIB),
            flags "--block-cache-bytes, HELENUS_BLOCK_CACHE_BYTES";
        /// Bytes a second that compactions may write. 0: no bound.
        compaction_bytes_per_second: u64 = 64 << 20,
            unit BytesPerSecond,
            cassandra Alias::Scaled("compaction_throughput_mb_per_sec", MIB);
        /// Bytes of rows, before compression, from which on a compaction of a shard gets the threads of others that have nothing to compact. 0:
        /// each has one thread. Below 64 MiB each has, too.
        shared_compaction_bytes: u64 = 256 << 20,
            unit Bytes;
        /// The threads that may merge at the same time for large compactions, over all shards. 1: each compaction has one thread. Default: as many as
        /// shards.
        compaction_threads: Option<usize> = None,
            range Range::from_to(1, 256),
            example Some(4);
        /// Bytes a second that a node fetches from others when it takes ranges over (it joins, or another one leaves). 0: no bound.
        stream_throughput_bytes_per_second: u64 = 100 << 20,
            unit BytesPerSecond;
        /// What it asks for at a time then. A chunk is encoded, written, read, checked and decoded as a whole, each in one turn, so
        /// the requests of clients wait behind it; and the allocator asks the system for larger blocks anew each time.
        stream_chunk_bytes: u32 = 128 << 10,
            unit Bytes,
            range Range::from_to(4 * KIB, STREAM_CHUNK_BYTES_MAX as u64);
        /// Whether the nodes repair their ranges by themselves: each range at least once in half of its table's `gc_grace_seconds`, and soon after
        /// a replica has missed writes for which no hints were kept.
        automatic_repair: bool = true;
        /// Bytes of rows a second that a node reads for the comparisons of repairs. 0: no bound.
        repair_throughput_bytes_per_second: u64 = 32 << 20,
            unit BytesPerSecond;

        section "Reads from several nodes";
        /// Whether replicas that answer slowly are asked after others of their data center. Else the nearest are asked, whatever their latencies.
        dynamic_snitch: bool = true,
            cassandra Alias::Same("dynamic_snitch");
        /// How much slower a replica has to be than the one that is faster for this, in percent. 100: twice as slow.
        dynamic_snitch_badness_percent: u32 = 100;
        /// After this time all latencies are forgotten, so that slow replicas are tried again.
        dynamic_snitch_reset_interval_ms: u64 = 600_000,
            unit Milliseconds,
            range Range::from_to(1_000, 86_400_000).that_is("a day"),
            cassandra Alias::Milliseconds("dynamic_snitch_reset_interval");
        /// How long a coordinator waits for the replicas of a read within one partition.
        read_request_timeout_ms: u64 = 5_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("read_request_timeout_in_ms");
        /// The same for each part of a read of several partitions.
        range_request_timeout_ms: u64 = 10_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("range_request_timeout_in_ms");

        section "Writes to several nodes";
        /// How long a coordinator waits for the replicas of a write; then the client gets a timeout.
        write_request_timeout_ms: u64 = 2_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("write_request_timeout_in_ms");
        /// The same for what a replica begins with a read: counters, lists changed by index or value.
        counter_write_request_timeout_ms: u64 = 5_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("counter_write_request_timeout_in_ms");
        /// How long TRUNCATE waits for all nodes.
        truncate_request_timeout_ms: u64 = 60_000,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("truncate_request_timeout_in_ms");
        /// How long lightweight transactions and SERIAL reads try to outbid others.
        cas_contention_timeout_ms: u64 = 1_800,
            unit Milliseconds,
            range Range::from_to(1, 3_600_000).that_is("an hour"),
            cassandra Alias::Same("cas_contention_timeout_in_ms");
        /// How long the transactions of a partition must have rested before replicas forget their state. Clocks of nodes must not
        /// be further apart than this.
        transaction_state_idle_seconds: u64 = 3_600,
            unit Seconds,
            range Range::from_to(60, 31_536_000).that_is("a year");
        /// Bytes of mutations on their way to replicas, over all shards, above which further writes are answered with OVERLOADED.
        /// A single write is never too large for it.
        max_write_bytes_in_flight: u64 = 256 << 20,
            unit Bytes,
            range Range::at_least(MIB);
        /// Whether a write that a replica missed (it was down or did not answer in time) is kept as a hint and sent when the replica
        /// is back.
        hinted_handoff_enabled: bool = true;
        /// How long a replica may be away and writes still be kept for it; after that it needs a repair.
        /// A hint is given up when nine tenths of its table's `gc_grace_seconds` have passed.
        max_hint_window_ms: u64 = 3 * 60 * 60 * 1_000,
            unit Milliseconds,
            range Range::from_to(1, 2_592_000_000).that_is("30 days"),
            cassandra Alias::Same("max_hint_window_in_ms");
        /// Bytes of hints that this node keeps for one other node. What is over it needs a repair.
        max_hints_bytes: u64 = 1 << 30,
            unit Bytes,
            range Range::at_least(MIB);
        /// Bytes a second of hints that this node sends to one other node. 0: no bound.
        hinted_handoff_throttle_bytes_per_second: u64 = 16 << 20,
            unit BytesPerSecond,
            range Range::at_least(64 * KIB).or_zero(),
            cassandra Alias::Scaled("hinted_handoff_throttle_in_kb", KIB);
        /// How long before they are used new streams of change feeds are agreed on. If any table has a feed, a node that joins waits for
        /// that and half as long again. Clocks of nodes must not be further apart than half of this. A node that has not heard from
        /// the leader of the metadata for half of this refuses writes to tables with a feed.
        cdc_generation_delay_ms: u64 = 10_000,
            unit Milliseconds,
            range Range::from_to(100, 600_000).that_is("ten minutes");

        section "Neighbours";
        /// Host name or address, and port, for other nodes. They get the address (that of a name is looked up at the start) unless
        /// `broadcast_address` is set, so it must be one by which they reach this node, not 0.0.0.0 or `[::]`. Port 0 picks a free one (logged
        /// at start). Default: none, and the node has no neighbours.
        internode: Option<Endpoint> = None,
            flags "--internode, HELENUS_INTERNODE",
            example Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7000).into());
        /// Address, or host name, by which other nodes reach this one, where it is not that of `internode`. They connect to it with the port
        /// of `internode`, which may then be a wildcard address. A name is looked up at the start.
        broadcast_address: Option<Host> = None,
            flags "--broadcast-address, HELENUS_BROADCAST_ADDRESS",
            example Some(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        /// Internode addresses (HOST:PORT) of nodes by which the cluster is found; names are looked up before each attempt.
        /// None, or only this node's own: it starts a cluster, or goes on with the one that it belongs to. On the command line separated
        /// by commas.
        seeds: Vec<Endpoint> = Vec::new(),
            flags "--seeds, HELENUS_SEEDS";
        /// Host id of a dead member whose place a node with an empty data directory takes: it gets the member's tokens, needs its data center
        /// and rack, and may have its address. When it has joined so, this is ignored.
        replace: Option<HostId> = None,
            flags "--replace, HELENUS_REPLACE",
            example Some(HostId::from_u128(0x7b0f_6c5e_58a1_4a3e_9d1c_2f1d_3a0c_5b77));
        /// Whether it does so even if that member had the only copy of some rows, which are lost then. Not without `replace`.
        replace_accept_loss: bool = false,
            flags "--accept-loss, HELENUS_REPLACE_ACCEPT_LOSS=true";
        /// Largest message of another node. Above it the link is closed.
        max_internode_frame_bytes: u32 = LinkOptions::default().frame_bytes_max,
            unit Bytes,
            range Range::at_least(MIB);
        /// Bytes that may wait to be written to one link, which goes from a shard of this node to a shard of another. Above: requests
        /// fail as overloaded. A single message may be larger.
        max_internode_queue_bytes: usize = LinkOptions::default().queue_bytes_max,
            unit Bytes,
            range Range::at_least(MIB);
        /// Requests that may wait for answers on one link. Above: further ones fail as overloaded.
        max_internode_calls_per_link: usize = LinkOptions::default().calls_per_link_max,
            range Range::at_least(1);
        /// Requests of one link that are carried out at a time; meanwhile no more are read from it.
        max_internode_requests_per_link: usize = LinkOptions::default().requests_per_link_max,
            range Range::at_least(1);
        /// Within which a link must be made, handshake included.
        internode_connect_timeout_ms: u64 = LinkOptions::default().connect_timeout.as_millis() as u64,
            unit Milliseconds,
            range Range::at_least(10);
        /// Silence of another node after which it is asked for a sign; after twice as long the link is closed.
        internode_keepalive_ms: u64 = LinkOptions::default().keepalive.as_millis() as u64,
            unit Milliseconds,
            range Range::at_least(100);
        /// The longest pause between attempts to reach a node. The first is 50 ms, each further one twice as long.
        internode_reconnect_max_ms: u64 = LinkOptions::default().reconnect_max.as_millis() as u64,
            unit Milliseconds,
            range Range::at_least(50);

        section "Ring and liveness";
        /// Places in the ring of a node that is new; kept afterwards. More make shares more even and joining slower.
        num_tokens: usize = DEFAULT_TOKENS,
            range Range::from_to(1, TOKENS_MAX as u64);
        /// The replication factor that the tokens of a new node are chosen for: shares of keyspaces that have it are even.
        allocate_tokens_for_replication_factor: usize = DEFAULT_REPLICATION_FACTOR,
            range Range::from_to(1, 100),
            cassandra Alias::Same("allocate_tokens_for_local_replication_factor");
        /// Every node probes one other in each such period. The same on all nodes.
        liveness_probe_period_ms: u64 = 1_000,
            unit Milliseconds,
            range Range::from_to(100, 60_000);
        /// How long a probed node may take to answer before others are asked to probe it. From 10 to half of `liveness_probe_period_ms`.
        liveness_probe_timeout_ms: u64 = 450,
            unit Milliseconds;
        /// How long a node that does not answer is only suspected; then it is down. With these settings a killed node is down for all
        /// after 5 to 8 seconds, and one that pauses for less than 4 is never. From `liveness_probe_period_ms` to 600000.
        liveness_suspicion_ms: u64 = 4_000,
            unit Milliseconds;

        section "Names that clients are shown";
        /// Name of the cluster. Not empty, at most 256 bytes. Nodes of another name are refused.
        cluster_name: String = "helenus".to_owned(),
            flags "--cluster-name, HELENUS_CLUSTER_NAME";
        /// Name of the data center of the node: that in `NetworkTopologyStrategy`, and what drivers call "local". Not empty.
        data_center: String = "datacenter1".to_owned(),
            flags "--data-center, HELENUS_DATA_CENTER";
        /// Name of the rack of the node. Not empty.
        rack: String = "rack1".to_owned(),
            flags "--rack, HELENUS_RACK";
        }
    };
}
