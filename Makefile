# `make help` says what there is. Everything that is fetched or built besides target/ goes to .cache.

DEMO_ARGS ?=
BENCH_ARGS ?=
FIGURES_ARGS ?=
GROWTH_ARGS ?=
SCALE_ARGS ?=
DRIVERS_ARGS ?=
CONFORMANCE_ARGS ?=
DIFFERENTIAL_ARGS ?=
SOAK_ROUNDS ?= 200
MODEL_OPERATIONS ?= 1000000
SEEDS ?= 1..200
SIMULATE_ARGS ?=
FUZZ_SECONDS ?= 3600
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# Programs as they are delivered: their symbols in a file of their own beside them.
symbols = scripts/symbols $(addprefix $(TARGET_DIR)/release/,$(1))
# A program below benches that compares the release build with its peers.
define compared
@scripts/setup test
cargo build --release -p helenus
$(call symbols,helenus)
scripts/install-latte
benches/$(1) --binary $(TARGET_DIR)/release/helenus $(BENCH_ARGS)
endef

.PHONY: help setup build demo demo-cluster cluster cluster-down cluster-local check test lint drivers robustness conformance differential \
        docker-test cluster-test bench bench-index bench-copies bench-shares bench-security bench-cluster bench-figures bench-costs bench-micro bench-growth bench-scale soak model simulate fuzz sanitize \
        coverage

help:
	@echo 'make demo         build, start a node in this process, load the three models, print their requests'
	@echo '                  (installs: a C compiler with apt if root and missing, a newer Rust if rustup is there;'
	@echo '                  DEMO_ARGS="--users 100000" for the guide'"'"'s data set, "--contact-point HOST:PORT")'
	@echo 'make cluster      three nodes in containers on 127.0.0.1:9042 to 127.0.0.3:9042 (installs docker.io and'
	@echo '                  docker-compose with apt if root and no engine answers); make cluster-down stops them'
	@echo 'make cluster-local  three nodes as processes on the same addresses; Ctrl-C stops them'
	@echo 'make demo-cluster the demo against three local processes, one of which is killed on the way'
	@echo 'make check        while working, under 3 minutes: format, lints, unit tests, text suites, layers, 5 simulated seeds'
	@echo 'make test         format, lints, all tests, every client, bad clients, 10 kills under load, a short fuzz run,'
	@echo '                  the engine under a sanitizer'
	@echo '                  (also brings into .cache: the Python drivers and cqlsh with pip; the Node, Go and Java'
	@echo '                  drivers where node, go, java and mvn are installed; cargo-deny; cargo-fuzz where a nightly Rust is)'
	@echo 'make drivers      the clients'"'"' suites alone (DRIVERS_ARGS="--only gocql,cqlsh"; "--tls": over TLS)'
	@echo 'make robustness   bad clients, paged reads under compaction, limits, signals, space given back (two minutes)'
	@echo 'make cluster-test real processes: kills, stalls, cut links, a full disk, joins, leaves under a driver'
	@echo 'make docker-test  the compose cluster: up, a container killed, a fourth node, down'
	@echo 'make conformance  the tests of Cassandra in ScyllaDB'"'"'s translation, fetched into .cache from GitHub'
	@echo '                  (needs Python 3.12; CONFORMANCE_ARGS="--checkout DIR" takes a clone)'
	@echo 'make differential  random schemas and statements on Apache Cassandra and here, 20 minutes: rows, order, paging, errors'
	@echo '                  (needs Java 17 and mvn; DIFFERENTIAL_ARGS="--seeds 1..50 --kinds rows,order,error")'
	@echo 'make bench        Helenus beside Apache Cassandra, about 25 minutes (needs Java 17 and mvn; brings'
	@echo '                  Cassandra'"'"'s jars and latte into .cache; BENCH_ARGS="--only helenus --seconds 3")'
	@echo 'make bench-index  searches by secondary indexes beside Cassandra'"'"'s storage-attached ones, under 20 minutes'
	@echo 'make bench-copies  what change feeds, views, caps and transactions cost, beside Cassandra, about 15 minutes'
	@echo 'make bench-shares  p99 of a quiet client beside a noisy role, wrong logins and garbage, 3 minutes (needs two cores)'
	@echo 'make bench-security  what logins, permissions and TLS cost, beside Cassandra with TLS, about 15 minutes'
	@echo 'make bench-cluster  three nodes beside three of Cassandra, about 30 minutes'
	@echo 'make bench-figures  a cluster of processes: start, schema changes, detection, hints, streaming (some minutes;'
	@echo '                  FIGURES_ARGS="--only schema,streaming")'
	@echo 'make bench-costs  what a member pays for gossip, schema changes and lookups in clusters of 3, 30 and 300'
	@echo 'make bench-micro  instructions of the hot paths against their limits (needs valgrind)'
	@echo 'make bench-growth reads of a page in partitions of 1,000 to 1,000,000 rows (GROWTH_ARGS="--rows 1000,10000")'
	@echo 'make bench-scale  more data than memory, large compactions, 10,000 tables, many rows and shards: about 40 minutes and 20 GB of disk'
	@echo '                  (SCALE_ARGS="--only cold,tables --seconds 10")'
	@echo 'make soak         kill -9 under load, SOAK_ROUNDS times (200)'
	@echo 'make model        the engine beside a plain model of it, MODEL_OPERATIONS (1000000) random operations'
	@echo 'make simulate     whole clusters in one thread, from seeds: crashes, partitions, skewed clocks, bad disks'
	@echo '                  (SEEDS=FIRST..LAST (1..200), SIMULATE_ARGS="--twice --jobs 8")'
	@echo 'make fuzz         every fuzz target for FUZZ_SECONDS (3600); needs a nightly Rust, brings cargo-fuzz'
	@echo 'make sanitize     the engine under the address sanitizer; needs a nightly Rust'
	@echo 'make coverage     how much of the plans and runs of statements the tests of query reach, in regions'
	@echo '                  (brings cargo-llvm-cov into .cache and llvm-tools with rustup; some minutes at first)'
	@echo 'make lint         format and lints'

setup:
	@scripts/setup build

build: setup
	cargo build --release
	$(call symbols,helenus helenus-demo)

demo: setup
	cargo build --release -p helenus-models
	$(TARGET_DIR)/release/helenus-demo $(DEMO_ARGS)

cluster: setup
	docker/cluster up

cluster-down:
	docker/cluster down

cluster-local: setup
	cargo build --release -p helenus
	$(call symbols,helenus)
	scripts/cluster-local

demo-cluster: setup
	cargo build --release -p helenus -p helenus-models
	$(call symbols,helenus helenus-demo)
	scripts/cluster-local --erase --data .cache/demo-cluster -- scripts/demo-cluster $(DEMO_ARGS)

cluster-test: setup
	cargo build --release -p helenus
	$(call symbols,helenus)
	tests/cluster/run --binary $(TARGET_DIR)/release/helenus

docker-test: setup
	@scripts/setup test
	tests/docker/run

check:
	@scripts/check

test:
	@scripts/test

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

drivers: setup
	@scripts/setup test
	cargo build --release -p helenus
	$(call symbols,helenus)
	tests/run-drivers --binary $(TARGET_DIR)/release/helenus $(DRIVERS_ARGS)

robustness: setup
	cargo build --release -p helenus
	$(call symbols,helenus)
	tests/robustness/run --binary $(TARGET_DIR)/release/helenus

conformance: setup
	@scripts/setup test
	cargo build --release -p helenus
	$(call symbols,helenus)
	tests/conformance/run --binary $(TARGET_DIR)/release/helenus $(CONFORMANCE_ARGS)

differential: setup
	@scripts/setup test
	cargo build --release -p helenus
	$(call symbols,helenus)
	tests/differential/run --binary $(TARGET_DIR)/release/helenus $(DIFFERENTIAL_ARGS)

bench: setup
	$(call compared,peers/compare)

bench-index: setup
	$(call compared,peers/index)

bench-copies: setup
	$(call compared,peers/copies)

bench-shares: setup
	$(call compared,peers/shares)

bench-security: setup
	$(call compared,peers/security)

bench-cluster: setup
	$(call compared,cluster/compare)

bench-figures: setup
	@scripts/setup test
	cargo build --release -p helenus
	$(call symbols,helenus)
	benches/cluster/figures --binary $(TARGET_DIR)/release/helenus $(FIGURES_ARGS)

bench-costs: setup
	cargo run --release -p helenus-benches --bin helenus-cluster-costs

bench-micro: setup
	@scripts/setup test
	cargo build --release -p helenus-hot-paths
	benches/micro/run

bench-scale: setup
	@scripts/setup test
	cargo build --release -p helenus -p helenus-benches --bin helenus --bin helenus-scale-load
	$(call symbols,helenus)
	benches/scale/run --binary $(TARGET_DIR)/release/helenus --load $(TARGET_DIR)/release/helenus-scale-load $(SCALE_ARGS)

bench-growth: setup
	@scripts/setup test
	cargo build --release -p helenus
	$(call symbols,helenus)
	benches/growth/run --binary $(TARGET_DIR)/release/helenus $(GROWTH_ARGS)

soak: setup
	cargo build --release -p helenus
	$(call symbols,helenus)
	cargo build -p helenus-tests --bin helenus-soak
	$(TARGET_DIR)/debug/helenus-soak --binary $(TARGET_DIR)/release/helenus --rounds $(SOAK_ROUNDS)

model: setup
	HELENUS_MODEL_OPERATIONS=$(MODEL_OPERATIONS) cargo test -p helenus-engine --test engine model::

simulate: setup
	scripts/simulate --seeds $(SEEDS) $(SIMULATE_ARGS)

fuzz: setup
	scripts/fuzz $(FUZZ_SECONDS)

sanitize: setup
	scripts/sanitize

coverage:
	@scripts/coverage
