"""Apache Cassandra 5 on this machine, as the peer of a benchmark.

Its jars come from Maven Central into .cache/peers/cassandra. The settings are those of Cassandra's own
`cassandra_latest.yaml` where they matter for speed (trie memtables off heap, BTI tables, unified compaction), with
the commit log in the mode the benchmark asks for. `group` acknowledges after fsync with a window of 1 ms.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/support"))
from node import cpu_seconds, disk_bytes, free_port, memory_mib  # noqa: E402
from toolchain import CACHE, bring, need, once  # noqa: E402

START_TIMEOUT_SECONDS = 180
STOP_TIMEOUT_SECONDS = 120

COMMIT_LOG = {
    "periodic": {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"},
    "group": {"commitlog_sync": "group", "commitlog_sync_group_window": "1ms"},
    "batch": {"commitlog_sync": "batch"},
}

# Java 17 hides what Cassandra reaches into: the same packages its own start script opens.
EXPORTS = """
java.base/java.lang.ref java.base/java.lang.reflect java.base/jdk.internal.misc java.base/jdk.internal.ref
java.base/jdk.internal.util java.base/sun.nio.ch java.management.rmi/com.sun.jmx.remote.internal.rmi
java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql
jdk.compiler/com.sun.tools.javac.file jdk.naming.dns/com.sun.jndi.dns jdk.unsupported/sun.misc
""".split()
OPENS = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.net
java.base/java.nio java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic
java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module
java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util.jar
java.base/jdk.internal.vm java.base/sun.nio.ch java.base/sun.nio.fs java.base/sun.security.ssl
java.management/sun.management jdk.management/com.sun.management.internal
""".split()
MODULES = [word for name in EXPORTS for word in ("--add-exports", f"{name}=ALL-UNNAMED")]
MODULES += [word for name in OPENS for word in ("--add-opens", f"{name}=ALL-UNNAMED")]

LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{home}/system.log</file>
    <encoder><pattern>%-5level %date{{ISO8601}} %logger{{0}} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""


class CassandraError(Exception):
    """Cassandra did not start or did not do what it was asked to."""


def jars():
    """Directory with Cassandra's jars, fetched once."""

    def make(directory):
        print("bringing Apache Cassandra's jars from Maven Central …", flush=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={directory}/lib"]
        bring([need("mvn"), "-q", "-B", "-f", HERE / "pom.xml", *copy], "mvn dependency:copy-dependencies")

    return once(CACHE / "peers/cassandra", [HERE / "pom.xml"], make) / "lib"


class Cassandra:
    """One node with fresh data; a `with` block starts and stops it and removes the data.

    Node 1 listens on 127.0.0.1 and is the seed of the others, which share its `ports` (CQL, internode) on 127.0.0.<number>.
    """

    name = "cassandra"

    def __init__(self, commit_log="periodic", heap="4G", number=1, ports=None, settings=(), properties=()):
        """`settings`: further lines of cassandra.yaml. `properties`: those of the JVM, as "name=value"."""
        need("java")
        self.commit_log, self.heap = commit_log, heap
        self.further_settings, self.properties = list(settings), list(properties)
        self.home = CACHE / f"peers/cassandra-data-{number}"
        self.jars = jars()
        self.process = None
        self.address = f"127.0.0.{number}"
        self.port, self.storage_port = ports or (free_port(), free_port())
        self.jmx_port = free_port()
        self.listen = f"{self.address}:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def data_dir(self):
        return self.home / "data"

    def settings(self):
        """cassandra.yaml."""
        lines = [
            "cluster_name: peer",
            "num_tokens: 16",
            "allocate_tokens_for_local_replication_factor: 3",
            "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch: SimpleSnitch",
            f"listen_address: {self.address}",
            f"rpc_address: {self.address}",
            f"native_transport_port: {self.port}",
            f"storage_port: {self.storage_port}",
            "auto_bootstrap: false",
            f'data_file_directories: ["{self.data_dir}"]',
            f"commitlog_directory: {self.home}/commitlog",
            f"hints_directory: {self.home}/hints",
            f"saved_caches_directory: {self.home}/saved_caches",
            f"cdc_raw_directory: {self.home}/cdc_raw",
            "commitlog_segment_size: 32MiB",
            "disk_optimization_strategy: ssd",
            "concurrent_reads: 32",
            "concurrent_writes: 32",
            "concurrent_compactors: 2",
            "compaction_throughput: 64MiB/s",
            "memtable_allocation_type: offheap_objects",
            "memtable: {configurations: {trie: {class_name: TrieMemtable}, default: {inherits: trie}}}",
            "sstable: {selected_format: bti}",
            "storage_compatibility_mode: NONE",
            "uuid_sstable_identifiers_enabled: true",
            "auto_snapshot: false",
            "default_compaction: {class_name: UnifiedCompactionStrategy, parameters: {scaling_parameters: T4, "
            "target_sstable_size: 1GiB, sstable_growth: 0.3333333333333333, min_sstable_size: 100MiB}}",
        ]
        lines.append(
            "seed_provider: [{class_name: org.apache.cassandra.locator.SimpleSeedProvider, "
            f'parameters: [{{seeds: "127.0.0.1:{self.storage_port}"}}]}}]'
        )
        lines += [f"{key}: {value}" for key, value in COMMIT_LOG[self.commit_log].items()]
        lines += self.further_settings
        return "\n".join(lines) + "\n"

    def start(self):
        """Starts on an empty directory and returns when it accepts CQL connections."""
        shutil.rmtree(self.home, ignore_errors=True)
        (self.home / "conf").mkdir(parents=True)
        (self.home / "conf/cassandra.yaml").write_text(self.settings())
        (self.home / "conf/logback.xml").write_text(LOGBACK.format(home=self.home))
        command = ["java", "-ea:none", *MODULES, "-Djdk.attach.allowAttachSelf=true", f"-Xms{self.heap}"]
        command += [f"-Xmx{self.heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=300", "-XX:+ParallelRefProcEnabled"]
        command += ["-XX:+AlwaysPreTouch", "-Xss256k", "-XX:+PerfDisableSharedMem", "-Djava.net.preferIPv4Stack=true"]
        command += ["-Dio.netty.tryReflectionSetAccessible=true", f"-Dcassandra.jmx.local.port={self.jmx_port}"]
        command += [f"-Dcassandra.config=file://{self.home}/conf/cassandra.yaml", f"-Dcassandra.storagedir={self.home}"]
        command += [f"-Dlogback.configurationFile={self.home}/conf/logback.xml", f"-Dcassandra.logdir={self.home}"]
        command += ["-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=2000"]
        command += [f"-D{property}" for property in self.properties]
        command += ["-cp", f"{self.home}/conf:{self.jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        with (self.home / "out.log").open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    tail = (self.home / "out.log").read_text(errors="replace")[-3000:]
                    self.stop()
                    raise CassandraError(f"Cassandra did not start:\n{tail}") from None
                time.sleep(0.1)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def nodetool(self, *words):
        command = ["java", *MODULES, f"-Dlogback.configurationFile={self.home}/conf/logback.xml", "-cp", f"{self.jars}/*"]
        command += ["org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(self.jmx_port), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise CassandraError(f"nodetool {' '.join(words)}: {done.stdout[-1000:]}")

    def settle(self, keyspace):
        """Everything of a keyspace in as few tables as compaction makes of it."""
        self.nodetool("flush", keyspace)
        self.nodetool("compact", keyspace)

    def table_bytes(self, keyspace, table, identity):
        """Bytes on disk of one table."""
        return disk_bytes(self.data_dir / keyspace / f"{table}-{identity}")

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def memory_mib(self):
        return memory_mib(self.process.pid)


if __name__ == "__main__":
    with Cassandra(os.environ.get("COMMIT_LOG", "periodic"), os.environ.get("HEAP", "1500M")) as peer:
        print(f"listening on {peer.listen}", flush=True)
        peer.process.wait()
