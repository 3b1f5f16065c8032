// The Java driver (4.x) against a server named by CQL_HOST and CQL_PORT. SERVER_RESTART, if set, is a command that
// restarts the server in place and returns when it serves again. One line is printed for each check: `ok - NAME` or
// `not ok - NAME`.

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.CqlVector;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidConfigurationInQueryException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.ssl.ProgrammaticSslEngineFactory;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.TupleType;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public final class DriverSuite {
  private static final String HOST = System.getenv().getOrDefault("CQL_HOST", "127.0.0.1");
  private static final int PORT = Integer.parseInt(System.getenv().getOrDefault("CQL_PORT", "9042"));
  private static final String DATA_CENTER = System.getenv().getOrDefault("CQL_DATA_CENTER", "datacenter1");
  private static final String RESTART = System.getenv("SERVER_RESTART");
  // Set where the server requires TLS and logins.
  private static final String AUTHORITY = System.getenv("CQL_AUTHORITY");
  private static final String KEYSPACE = "suite_java";
  private static final String REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}";

  private final CqlSession session;

  private DriverSuite(CqlSession session) {
    this.session = session;
  }

  private static CqlSession connect(String keyspace, String version, String compression) {
    ProgrammaticDriverConfigLoaderBuilder options =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(50))
            .withString(DefaultDriverOption.RECONNECTION_POLICY_CLASS, "ConstantReconnectionPolicy")
            .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200));
    if (version != null) {
      options.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
    }
    if (compression != null) {
      options.withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression);
    }
    CqlSessionBuilder session =
        CqlSession.builder()
            .addContactPoint(new InetSocketAddress(HOST, PORT))
            .withLocalDatacenter(DATA_CENTER)
            .withConfigLoader(options.build())
            .withKeyspace(keyspace);
    if (AUTHORITY != null) {
      session
          .withAuthCredentials(System.getenv("CQL_USER"), System.getenv("CQL_PASSWORD"))
          .withSslEngineFactory(new ProgrammaticSslEngineFactory(trusting(AUTHORITY), null, true));
    }
    return session.build();
  }

  private static SSLContext trusting(String authority) {
    try (InputStream file = Files.newInputStream(Path.of(authority))) {
      KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
      trusted.load(null, null);
      trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
      TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      managers.init(trusted);
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, managers.getTrustManagers(), null);
      return context;
    } catch (IOException | GeneralSecurityException error) {
      throw new IllegalStateException(authority, error);
    }
  }

  private static void equal(String what, Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError(what + ": " + actual + " instead of " + expected);
    }
  }

  private static void refused(Class<? extends Exception> kind, Runnable request) {
    try {
      request.run();
    } catch (Exception error) {
      equal("kind of the error (" + error.getMessage() + ")", error.getClass(), kind);
      return;
    }
    throw new AssertionError("no error, " + kind.getSimpleName() + " was expected");
  }

  private static void waitUntil(String what, int seconds, Callable<Boolean> condition) throws Exception {
    long end = System.nanoTime() + seconds * 1_000_000_000L;
    while (!condition.call()) {
      if (System.nanoTime() > end) {
        throw new AssertionError(what + ": not within " + seconds + " s");
      }
      Thread.sleep(50);
    }
  }

  private void run(String cql, Object... values) {
    session.execute(session.prepare(cql).bind(values));
  }

  private List<Integer> ints(SimpleStatement statement) {
    List<Integer> found = new ArrayList<>();
    session.execute(statement).forEach(row -> found.add(row.getInt(0)));
    return found;
  }

  private static List<Integer> upTo(int end) {
    return IntStream.range(0, end).boxed().toList();
  }

  void topology() {
    equal("nodes", session.getMetadata().getNodes().size(), 1);
    Node node = session.getMetadata().getNodes().values().iterator().next();
    equal("data center", node.getDatacenter(), DATA_CENTER);
    equal("has a host id", node.getHostId() != null, true);
    equal("token map", session.getMetadata().getTokenMap().isPresent(), true);
    equal("replicas", session.getMetadata().getTokenMap().get().getReplicas(KEYSPACE, ByteBuffer.wrap(new byte[4])), Set.of(node));
    equal("highest protocol version", session.getContext().getProtocolVersion().name(), "V5");
  }

  void nativeTypes() throws Exception {
    Map<String, Object> values = new LinkedHashMap<>();
    values.put("ascii", "plain");
    values.put("bigint", Long.MIN_VALUE);
    values.put("blob", ByteBuffer.wrap(new byte[] {0, -1, 16}));
    values.put("boolean", true);
    values.put("date", LocalDate.of(1969, 12, 31));
    values.put("decimal", new BigDecimal("-12345678901234567890.000123"));
    values.put("double", -2.5e300);
    values.put("duration", CqlDuration.from("14mo3d1s7ns"));
    values.put("float", 0.5f);
    values.put("inet", InetAddress.getByName("2001:db8::7f"));
    values.put("int", Integer.MIN_VALUE);
    values.put("smallint", Short.MIN_VALUE);
    values.put("text", "krem\u00f3wki \u2603");
    values.put("time", LocalTime.of(23, 59, 59, 999_999_999));
    values.put("timestamp", Instant.parse("2024-02-29T23:59:59.123Z"));
    values.put("timeuuid", UUID.fromString("30821634-13ad-11eb-adc1-0242ac120002"));
    values.put("tinyint", Byte.MIN_VALUE);
    values.put("uuid", UUID.fromString("8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11"));
    values.put("varint", BigInteger.TEN.pow(40).negate());
    List<String> columns = values.keySet().stream().map(name -> "v_" + name).toList();
    List<String> definitions = values.keySet().stream().map(name -> "v_" + name + " " + name).toList();
    session.execute("CREATE TABLE native (id int PRIMARY KEY, " + String.join(", ", definitions) + ")");
    String names = String.join(", ", columns);
    String insert = "INSERT INTO native (id, " + names + ") VALUES (?" + ", ?".repeat(values.size()) + ")";
    List<Object> bound = new ArrayList<>(List.of(1));
    bound.addAll(values.values());
    run(insert, bound.toArray());
    Object[] nulls = new Object[values.size() + 1];
    nulls[0] = 2;
    run(insert, nulls);
    run(insert, 3);
    session.execute(SimpleStatement.newInstance("INSERT INTO native (id, v_text) VALUES (?, ?)", 5, "positional"));
    session.execute(SimpleStatement.newInstance("INSERT INTO native (id, v_text) VALUES (:i, :t)", Map.of("i", 6, "t", "named")));
    Row row = session.execute("SELECT " + names + " FROM native WHERE id = 1").one();
    for (String name : values.keySet()) {
      equal(name, row.getObject("v_" + name), values.get(name));
    }
    for (int id = 2; id <= 3; id++) {
      Row empty = session.execute(SimpleStatement.newInstance("SELECT " + names + " FROM native WHERE id = ?", id)).one();
      for (String name : columns) {
        equal(name, empty.isNull(name), true);
      }
    }
    equal("positional", session.execute("SELECT v_text FROM native WHERE id = 5").one().getString(0), "positional");
    equal("named", session.execute("SELECT v_text FROM native WHERE id = 6").one().getString(0), "named");
  }

  void vector() {
    session.execute("CREATE TABLE vectors (id int PRIMARY KEY, v vector<float, 3>)");
    CqlVector<Float> expected = CqlVector.newInstance(0.5f, -1f, 2.25f);
    run("INSERT INTO vectors (id, v) VALUES (1, ?)", expected);
    equal("vector", session.execute("SELECT v FROM vectors").one().getVector(0, Float.class), expected);
  }

  void collectionsTuplesAndUserTypes() {
    session.execute("CREATE TYPE address (street text, number int, tags frozen<set<text>>)");
    session.execute(
        "CREATE TABLE nested (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, "
            + "f frozen<list<frozen<map<int, text>>>>, t tuple<int, text, boolean>, home frozen<address>)");
    UserDefinedType type = session.getMetadata().getKeyspace(KEYSPACE).get().getUserDefinedType("address").get();
    UdtValue home = type.newValue("Main", 1, Set.of("a", "b"));
    TupleType tupleType = DataTypes.tupleOf(DataTypes.INT, DataTypes.TEXT, DataTypes.BOOLEAN);
    TupleValue tuple = tupleType.newValue(7, null, true);
    List<Object> values = List.of(List.of(3, 1, 3), Set.of("x", "y"), Map.of("k", 1L << 40), List.of(Map.of(1, "one"), Map.of(2, "two")), tuple, home);
    run("INSERT INTO nested (id, l, s, m, f, t, home) VALUES (1, ?, ?, ?, ?, ?, ?)", values.toArray());
    Row row = session.execute("SELECT l, s, m, f, t, home FROM nested WHERE id = 1").one();
    for (int column = 0; column < 4; column++) {
      equal("column " + column, row.getObject(column), values.get(column));
    }
    equal("tuple", row.getTupleValue(4).getFormattedContents(), tuple.getFormattedContents());
    equal("user type", row.getUdtValue(5).getSet("tags", String.class), Set.of("a", "b"));
    equal("user type", row.getUdtValue(5).getString("street"), "Main");
  }

  void counters() {
    session.execute("CREATE TABLE counters (id int PRIMARY KEY, hits counter)");
    PreparedStatement update = session.prepare("UPDATE counters SET hits = hits + ? WHERE id = 1");
    for (long n : new long[] {5, 7, -2}) {
      session.execute(update.bind(n));
    }
    session.execute(BatchStatement.newInstance(DefaultBatchType.COUNTER, update.bind(10L)));
    equal("counter", session.execute("SELECT hits FROM counters").one().getLong(0), 20L);
  }

  void pagingReturnsEachRowOnce() {
    session.execute("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))");
    PreparedStatement insert = session.prepare("INSERT INTO pages (p, c) VALUES (1, ?)");
    for (int c : upTo(95)) {
      session.execute(insert.bind(c));
    }
    equal("one partition", ints(SimpleStatement.newInstance("SELECT c FROM pages WHERE p = 1").setPageSize(10)), upTo(95));
    List<Integer> seen = new ArrayList<>();
    SimpleStatement scan = SimpleStatement.newInstance("SELECT c FROM pages").setPageSize(10);
    for (AsyncResultSet page = session.executeAsync(scan).toCompletableFuture().join(); ; ) {
      page.currentPage().forEach(row -> seen.add(row.getInt(0)));
      if (!page.hasMorePages()) {
        break;
      }
      ByteBuffer state = page.getExecutionInfo().getPagingState();
      page = session.executeAsync(scan.setPagingState(state)).toCompletableFuture().join();
    }
    equal("whole table", seen, upTo(95));
  }

  void batches() {
    session.execute("CREATE TABLE batches (p int, c int, PRIMARY KEY (p, c))");
    PreparedStatement insert = session.prepare("INSERT INTO batches (p, c) VALUES (?, ?)");
    int c = 0;
    for (DefaultBatchType kind : List.of(DefaultBatchType.LOGGED, DefaultBatchType.UNLOGGED)) {
      c++;
      session.execute(
          BatchStatement.newInstance(kind, insert.bind(1, c), insert.bind(2, c), SimpleStatement.newInstance("INSERT INTO batches (p, c) VALUES (3, ?)", c)));
    }
    equal("rows", ints(SimpleStatement.newInstance("SELECT c FROM batches")).size(), 6);
  }

  void lightweightTransactions() {
    session.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text)");
    PreparedStatement insert = session.prepare("INSERT INTO accounts (id, owner) VALUES (1, ?) IF NOT EXISTS");
    equal("first", session.execute(insert.bind("ann")).wasApplied(), true);
    ResultSet second = session.execute(insert.bind("bob"));
    equal("second", second.wasApplied(), false);
    equal("owner", second.one().getString("owner"), "ann");
    equal("condition", session.execute("UPDATE accounts SET owner = 'eve' WHERE id = 1 IF owner = 'ann'").wasApplied(), true);
  }

  void errors() {
    refused(SyntaxError.class, () -> session.execute("SELEC 1"));
    refused(InvalidQueryException.class, () -> session.execute("SELECT * FROM missing_table"));
    session.execute("CREATE TABLE twice (id int PRIMARY KEY)");
    refused(AlreadyExistsException.class, () -> session.execute("CREATE TABLE twice (id int PRIMARY KEY)"));
    refused(InvalidConfigurationInQueryException.class, () -> session.execute("CREATE KEYSPACE bad WITH replication = {'class': 'Nonsense'}"));
    equal("rows", ints(SimpleStatement.newInstance("SELECT id FROM twice")).size(), 0);
  }

  void unpreparedIsHealed() {
    session.execute("CREATE TABLE healed (id int PRIMARY KEY, v int)");
    PreparedStatement insert = session.prepare("INSERT INTO healed (id, v) VALUES (?, ?)");
    session.execute(insert.bind(1, 1));
    session.execute("DROP TABLE healed");
    session.execute("CREATE TABLE healed (id int PRIMARY KEY, v int)");
    session.execute(insert.bind(2, 2));
    equal("rows", ints(SimpleStatement.newInstance("SELECT id FROM healed")), List.of(2));
  }

  void alteredTable() {
    session.execute("CREATE TABLE altered (id int PRIMARY KEY, a int)");
    PreparedStatement select = session.prepare("SELECT * FROM altered WHERE id = 1");
    session.execute("INSERT INTO altered (id, a) VALUES (1, 2)");
    equal("before", session.execute(select.bind()).one().getColumnDefinitions().size(), 2);
    session.execute("ALTER TABLE altered ADD b text");
    session.execute("INSERT INTO altered (id, b) VALUES (1, 'new')");
    Row row = session.execute(select.bind()).one();
    equal("after", List.of(row.getInt("id"), row.getInt("a"), row.getString("b")), List.of(1, 2, "new"));
  }

  void schemaMetadata() {
    session.execute(
        "CREATE TABLE described (a int, b text, c timeuuid, d int, s text static, v list<int>, "
            + "PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a table'");
    session.execute("CREATE TYPE pair (first int, second frozen<list<text>>)");
    KeyspaceMetadata keyspace = session.getMetadata().getKeyspace(KEYSPACE).get();
    TableMetadata table = keyspace.getTable("described").get();
    equal("partition key", table.getPartitionKey().stream().map(column -> column.getName().asInternal()).toList(), List.of("a", "b"));
    equal("clustering", List.copyOf(table.getClusteringColumns().values()), List.of(ClusteringOrder.DESC, ClusteringOrder.ASC));
    equal("static", table.getColumn("s").get().isStatic(), true);
    equal("compact", table.isCompactStorage(), false);
    equal("comment", table.getOptions().get(CqlIdentifier.fromCql("comment")), "a table");
    equal("type", table.getColumn("v").get().getType(), DataTypes.listOf(DataTypes.INT));
    equal("fields", keyspace.getUserDefinedType("pair").get().getFieldNames().size(), 2);
    equal("durable writes", keyspace.isDurableWrites(), true);
  }

  void protocolVersionsAndCompression() {
    session.execute("CREATE TABLE versions (id text PRIMARY KEY, v text)");
    String large = "0123456789abcdef".repeat(30_000);
    for (String version : List.of("V3", "V4", "V5")) {
      for (String compression : List.of("none", "lz4", "snappy")) {
        if (version.equals("V5") && compression.equals("snappy")) {
          continue;
        }
        try (CqlSession own = connect(KEYSPACE, version, compression)) {
          equal("version", own.getContext().getProtocolVersion().name(), version);
          own.execute(SimpleStatement.newInstance("INSERT INTO versions (id, v) VALUES (?, ?)", version, large));
          equal(version + " " + compression, own.execute("SELECT v FROM versions WHERE id = '" + version + "'").one().getString(0), large);
        }
      }
    }
  }

  void tracing() {
    session.execute("CREATE TABLE traced (id int PRIMARY KEY)");
    var trace = session.execute(SimpleStatement.newInstance("SELECT * FROM traced").setTracing(true)).getExecutionInfo().getQueryTrace();
    equal("has events", trace.getEvents().isEmpty(), false);
    equal("has a duration", trace.getDurationMicros() >= 0, true);
  }

  void schemaEventsReachOtherClients() throws Exception {
    String name = KEYSPACE + "_events";
    session.execute("DROP KEYSPACE IF EXISTS " + name);
    try (CqlSession other = connect(null, null, null)) {
      session.execute("CREATE KEYSPACE " + name + " WITH replication = " + REPLICATION);
      waitUntil("the event of a new keyspace", 15, () -> other.getMetadata().getKeyspace(name).isPresent());
      session.execute("CREATE TABLE " + name + ".t (id int PRIMARY KEY)");
      waitUntil("the event of a new table", 15, () -> other.getMetadata().getKeyspace(name).get().getTable("t").isPresent());
      session.execute("DROP KEYSPACE " + name);
      waitUntil("the event of a dropped keyspace", 15, () -> other.getMetadata().getKeyspace(name).isEmpty());
    }
  }

  void reconnectsAfterARestart() throws Exception {
    session.execute("CREATE TABLE survivors (id int PRIMARY KEY, v text)");
    PreparedStatement insert = session.prepare("INSERT INTO survivors (id, v) VALUES (?, ?)");
    session.execute(insert.bind(1, "before"));
    equal("restart", new ProcessBuilder("sh", "-c", RESTART).inheritIO().start().waitFor(), 0);
    waitUntil(
        "a request after the restart",
        30,
        () -> {
          try {
            session.execute(insert.bind(2, "after"));
            return true;
          } catch (RuntimeException error) {
            return false;
          }
        });
    equal("rows", ints(SimpleStatement.newInstance("SELECT id FROM survivors")).size(), 2);
  }

  private interface Check {
    void run() throws Exception;
  }

  public static void main(String[] arguments) {
    try (CqlSession first = connect(null, null, null)) {
      first.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
      first.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = " + REPLICATION);
    }
    int failed = 0;
    try (CqlSession session = connect(KEYSPACE, null, null)) {
      DriverSuite suite = new DriverSuite(session);
      Map<String, Check> checks = new LinkedHashMap<>();
      checks.put("topology", suite::topology);
      checks.put("native types", suite::nativeTypes);
      checks.put("vector", suite::vector);
      checks.put("collections, tuples and user types", suite::collectionsTuplesAndUserTypes);
      checks.put("counters", suite::counters);
      checks.put("paging returns each row once", suite::pagingReturnsEachRowOnce);
      checks.put("batches", suite::batches);
      checks.put("lightweight transactions", suite::lightweightTransactions);
      checks.put("errors", suite::errors);
      checks.put("unprepared statements are prepared again", suite::unpreparedIsHealed);
      checks.put("altered table", suite::alteredTable);
      checks.put("schema metadata", suite::schemaMetadata);
      checks.put("protocol versions and compression", suite::protocolVersionsAndCompression);
      checks.put("tracing", suite::tracing);
      checks.put("schema events reach other clients", suite::schemaEventsReachOtherClients);
      checks.put("reconnects after a restart", suite::reconnectsAfterARestart);
      for (Map.Entry<String, Check> check : checks.entrySet()) {
        if (RESTART == null && check.getKey().startsWith("reconnects")) {
          System.out.println("ok - " + check.getKey() + " # SKIP no SERVER_RESTART command");
          continue;
        }
        try {
          check.getValue().run();
          System.out.println("ok - " + check.getKey());
        } catch (Exception | AssertionError error) {
          failed++;
          System.out.println("not ok - " + check.getKey());
          error.printStackTrace(System.out);
        }
      }
      session.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
    }
    System.exit(failed == 0 ? 0 : 1);
  }
}
