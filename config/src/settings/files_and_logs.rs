//! Settings of encryption, of passwords and functions, and of logs.
//!
//! Rows of the table in [`super`], in the order of `helenus.toml`.

macro_rules! files_and_logs_settings {
    ([$next:ident $($others:ident)*] $($before:tt)*) => {
        $next! { [$($others)*] $($before)*

        section "Encryption of connections" "Tables: write them as [client_encryption], [internode_encryption] and [admin_encryption] at the end of the file. docs/security.md has the steps.";
        /// TLS for clients.
        /// * `mode`: "off"; "optional": on one port with clients that do not use it; "required": other clients are refused.
        /// * `certificate`, `key`: PEM files of the node. They are read again when they change; files that cannot be used are logged and
        ///   leave the former ones in use.
        /// * `client_certificates`: "none", "optional" or "required"; `authorities` vouch for them, and `revocations` (a PEM file of CRLs) withdraw some.
        ///
        /// Cassandra's table, `client_encryption_options`, names files of other formats (JKS, PKCS 12), which are not read.
        client_encryption: ClientEncryption = ClientEncryption::default(),
            example ClientEncryption::example();
        /// TLS between nodes, with the same keys; both sides always show certificates. A certificate names the node's host id
        /// (`urn:uuid:...` as a URI, or as a DNS name), or its address or a DNS name that is looked up to it. With "optional" a node accepts
        /// both and uses TLS with every node that does: it is the step between "off" and "required" of a running cluster.
        internode_encryption: InternodeEncryption = InternodeEncryption::default(),
            example InternodeEncryption::example();
        /// TLS of the port for metrics, health and administration (`http_port`, `http_listen`), with the same keys as for clients. With "optional",
        /// on loopback addresses only, plain HTTP is served too. The Unix socket and `metrics_listen` have no TLS.
        admin_encryption: ClientEncryption = ClientEncryption::default(),
            example ClientEncryption::example();

        section "Encryption of files" "A table: write it as [encryption_at_rest] at the end of the file. docs/security.md has the steps.";
        /// Encryption of the files of the node with AES-256-GCM: tables, indexes, commit log, hints, metadata, snapshots.
        /// * `mode`: "off"; "all": new files are encrypted, and older ones when they are written again; "tables": so are all but those of tables without
        ///   the option `encryption = {'enabled': 'true'}`. With "off" and keys the encrypted ones are read.
        /// * `key_file` or `key_command` (its output) has the master keys, one a line: a name and 32 bytes in base64. The last one is used for new
        ///   files. They are read at the start and by `helenus admin reloadssl`.
        /// * `key_command_timeout_ms`: a command that takes longer is ended, and is an error.
        /// * `plain_files`: "accept"; "refuse": a file that is not encrypted, and would be if it were made now, is an error that names it, so that nobody
        ///   puts one in the place of an encrypted one. `helenus encrypt` encrypts all that are left while the node is stopped.
        encryption_at_rest: EncryptionAtRest = EncryptionAtRest::default(),
            example EncryptionAtRest::example();

        section "Store of backups" "A table: write it as [backup_store] at the end of the file. docs/operations.md has the steps.";
        /// Where `helenus admin upload` copies snapshots to, and `download` gets them from.
        /// * `address`: a directory that is there, as an absolute path or `file:///` address; or `s3://BUCKET/PREFIX` (the program's feature `s3`, which it
        ///   has unless it was built without). Default: none, and nothing is uploaded.
        /// * `endpoint`: `https://HOST:PORT` of a store that is not AWS, or `http://`, without TLS. The authorities for TLS are those of the machine, or of
        ///   the file in the variable `SSL_CERT_FILE`.
        /// * `region`; `access_key_id` and `secret_access_key_file`, a file with the key, read at each operation. Without them the variables `AWS_ACCESS_KEY_ID`,
        ///   `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and so on of the node count, and without those the role of the machine.
        /// * `throughput_mib_per_s`: what operations on the store may move in a second; 0: no limit.
        /// * `parallel_transfers`: files that move at a time, from 1 to 64.
        backup_store: BackupStore = BackupStore::default(),
            example BackupStore::example();

        section "Passwords" "A table: write it as [password_policy] at the end of the file.";
        /// What new passwords of roles must be like, with Cassandra's names. Passwords are refused below the bounds that end with `_fail`, and accepted
        /// with a warning below those that end with `_warn`. Hashed passwords are not looked at.
        /// * `validator_class_name`: `"CassandraPasswordValidator"`; without it every password is accepted.
        /// * `generator_class_name`: `"CassandraPasswordGenerator"`, for `GENERATED PASSWORD`; without it that is refused.
        /// * `characteristic_…`: a password must have enough upper-case and lower-case letters, digits and other characters, of more of these four
        ///   kinds than this.
        /// * `illegal_sequence_length`: parts of alphabets, digits or rows of keys are refused from this length on.
        /// * `dictionary`: a file of passwords that are refused, one a line, at most 64 MiB, read at the start.
        /// * `detailed_messages`: whether errors and warnings list the violated rules for every role, or for superusers only.
        password_policy: PasswordPolicy = PasswordPolicy::default(),
            example PasswordPolicy::example();

        section "User-defined functions";
        /// Whether CREATE FUNCTION is allowed, and functions are called. They are written in Lua and run in a sandbox.
        user_defined_functions_enabled: bool = false;

        section "Masks of columns";
        /// Whether columns of tables may be given masks (`MASKED WITH`). With permissions enforced, clients without UNMASK see the masks; else every client
        /// sees what is masked.
        dynamic_data_masking_enabled: bool = false;

        section "Audit log" "Who did what, and from where. Cassandra's table [audit_logging_options] is taken too, with its names, which have no audit_logging_ before them.";
        /// Whether the node records what clients do from its start on. `helenus nodetool enableauditlog` begins it later.
        audit_logging_enabled: bool = false;
        /// Form and place of the entries.
        /// * `"FileAuditLogger"`: lines of Cassandra's text in files.
        /// * `"JsonFileAuditLogger"`: a line of JSON for each entry in files.
        /// * `"ProcessLogAuditLogger"`: Cassandra's text in the log of the node, with the target `helenus::audit`.
        audit_logging_logger: String = "FileAuditLogger".to_owned();
        /// The directory of the files, made if missing. Default: `audit` in `data_dir`.
        audit_logging_logs_dir: Option<PathBuf> = None,
            example Some(PathBuf::from("helenus-audit"));
        /// Keyspaces whose entries are recorded; none: all.
        audit_logging_included_keyspaces: Vec<String> = Vec::new();
        /// Keyspaces whose entries are not recorded.
        audit_logging_excluded_keyspaces: Vec<String> =
            ["system", "system_schema", "system_virtual_schema"].map(str::to_owned).into();
        /// Categories that are recorded (QUERY, DML, DDL, DCL, AUTH, PREPARE, ERROR, OTHER); none: all.
        audit_logging_included_categories: Vec<String> = Vec::new();
        /// Categories that are not recorded.
        audit_logging_excluded_categories: Vec<String> = Vec::new();
        /// Roles whose entries are recorded ("anonymous": clients that have not logged in); none: all.
        audit_logging_included_users: Vec<String> = Vec::new();
        /// Roles whose entries are not recorded.
        audit_logging_excluded_users: Vec<String> = Vec::new();
        /// Whether the values that a client has bound stand behind the text of a statement.
        audit_logging_bound_values: bool = false;
        /// Whether requests wait while `audit_logging_max_queue_weight` is reached because the disk is slow. Otherwise the requests go on, and
        /// entries are dropped and counted. Cassandra's default is true.
        audit_logging_block: bool = false;
        /// Bytes of entries that may wait to be written.
        audit_logging_max_queue_weight: DataSize = DataSize(32 << 20),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Bytes of a file after which the next one begins.
        audit_logging_max_file_size: DataSize = DataSize(64 << 20),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Bytes of all files above which the oldest is removed.
        audit_logging_max_log_size: DataSize = DataSize(16 << 30),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Files that are kept; 0: as many as `audit_logging_max_log_size` has room for.
        audit_logging_max_files: usize = 0;
        /// How often a new file begins at the latest: "MINUTELY", "HOURLY" or "DAILY".
        audit_logging_roll_cycle: String = "HOURLY".to_owned();

        section "Full query log" "Every request with its values, for `helenus replay`. Cassandra's table [full_query_logging_options] is taken too.";
        /// Whether the node records requests from its start on. `helenus nodetool enablefullquerylog` begins it later.
        full_query_logging_enabled: bool = false;
        /// The directory of the files, made if missing. Default: `full_query_log` in `data_dir`.
        full_query_logging_log_dir: Option<PathBuf> = None,
            example Some(PathBuf::from("helenus-queries"));
        /// As `audit_logging_block`.
        full_query_logging_block: bool = false;
        /// Bytes of records that may wait to be written.
        full_query_logging_max_queue_weight: DataSize = DataSize(32 << 20),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Bytes of a file after which the next one begins.
        full_query_logging_max_file_size: DataSize = DataSize(256 << 20),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// Bytes of all files above which the oldest is removed.
        full_query_logging_max_log_size: DataSize = DataSize(16 << 30),
            unit Bytes,
            range Range::at_least(64 * KIB);
        /// How often a new file begins at the latest: "MINUTELY", "HOURLY" or "DAILY".
        full_query_logging_roll_cycle: String = "HOURLY".to_owned();

        section "Logs";
        /// Form of the logs on standard error: "text" or "json".
        log_format: LogFormat = LogFormat::Text,
            flags "--log-format, HELENUS_LOG_FORMAT";
        /// What is logged, as a `tracing` filter: "warn", "info,openraft=warn,helenus=debug", ...
        log_filter: String = DEFAULT_LOG_FILTER.to_owned(),
            flags "--log-filter, HELENUS_LOG";
        }
    };
}
