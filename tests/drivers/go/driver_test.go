// Package drivers runs gocql against a server named by CQL_HOST and CQL_PORT. SERVER_RESTART, if set, is a command
// that restarts the server in place and returns when it serves again.
package drivers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"gopkg.in/inf.v0"
)

const keyspace = "suite_gocql"

var session *gocql.Session

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func cluster(inKeyspace string) *gocql.ClusterConfig {
	config := gocql.NewCluster(environment("CQL_HOST", "127.0.0.1"))
	config.Port, _ = strconv.Atoi(environment("CQL_PORT", "9042"))
	config.Keyspace = inKeyspace
	config.Consistency = gocql.LocalOne
	config.Timeout = 30 * time.Second
	config.ConnectTimeout = 10 * time.Second
	config.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	config.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 300, Interval: 100 * time.Millisecond}
	config.ReconnectInterval = 500 * time.Millisecond
	if authority := os.Getenv("CQL_AUTHORITY"); authority != "" {
		config.SslOpts = &gocql.SslOptions{CaPath: authority, EnableHostVerification: true}
		config.Authenticator = gocql.PasswordAuthenticator{Username: os.Getenv("CQL_USER"), Password: os.Getenv("CQL_PASSWORD")}
	}
	return config
}

func TestMain(m *testing.M) {
	first, err := cluster("").CreateSession()
	if err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	for _, statement := range []string{
		"DROP KEYSPACE IF EXISTS " + keyspace,
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
	} {
		if err := first.Query(statement).Exec(); err != nil {
			fmt.Println(statement, err)
			os.Exit(1)
		}
	}
	first.Close()
	if session, err = cluster(keyspace).CreateSession(); err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	status := m.Run()
	_ = session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec()
	session.Close()
	os.Exit(status)
}

func run(t *testing.T, statement string, values ...interface{}) {
	t.Helper()
	if err := session.Query(statement, values...).Exec(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func equal(t *testing.T, what string, actual, expected interface{}) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("%s: %v (%T) instead of %v (%T)", what, actual, actual, expected, expected)
	}
}

func ints(t *testing.T, query *gocql.Query) []int {
	t.Helper()
	var value int
	values := []int{}
	iter := query.Iter()
	for iter.Scan(&value) {
		values = append(values, value)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return values
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

func TestNativeTypes(t *testing.T) {
	uuid, _ := gocql.ParseUUID("8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11")
	timeUUID, _ := gocql.ParseUUID("30821634-13ad-11eb-adc1-0242ac120002")
	decimal, _ := new(inf.Dec).SetString("-12345678901234567890.000123")
	wide, _ := new(big.Int).SetString("-1"+strings.Repeat("0", 40), 10)
	values := []struct {
		cqlType string
		value   interface{}
	}{
		{"ascii", "plain"}, {"bigint", int64(-1 << 63)}, {"blob", []byte{0, 255, 16}}, {"boolean", true},
		{"date", time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)}, {"decimal", *decimal}, {"double", -2.5e300},
		{"duration", gocql.Duration{Months: 14, Days: 3, Nanoseconds: 1000000007}}, {"float", float32(0.5)},
		{"inet", net.ParseIP("2001:db8::7f")}, {"int", -1 << 31}, {"smallint", int16(-32768)},
		{"text", "kremówki ☃"}, {"time", 86399999999999 * time.Nanosecond},
		{"timestamp", time.Date(2024, 2, 29, 23, 59, 59, 123000000, time.UTC)}, {"timeuuid", timeUUID},
		{"tinyint", int8(-128)}, {"uuid", uuid}, {"varint", *wide},
	}
	for _, one := range values {
		table := "native_" + one.cqlType
		run(t, fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, v %s)", table, one.cqlType))
		run(t, "INSERT INTO "+table+" (id, v) VALUES (?, ?)", 1, one.value)
		run(t, "INSERT INTO "+table+" (id, v) VALUES (?, ?)", 2, nil)
		run(t, "INSERT INTO "+table+" (id, v) VALUES (?, ?)", 3, gocql.UnsetValue)
		read := reflect.New(reflect.TypeOf(one.value))
		if err := session.Query("SELECT v FROM " + table + " WHERE id = 1").Scan(read.Interface()); err != nil {
			t.Errorf("%s: %v", one.cqlType, err)
			continue
		}
		// fmt prints numbers of any width and addresses of any length alike.
		equal(t, one.cqlType, fmt.Sprint(read.Elem().Interface()), fmt.Sprint(one.value))
		for id := 2; id <= 3; id++ {
			pointer := reflect.New(reflect.PointerTo(reflect.TypeOf(one.value)))
			if err := session.Query("SELECT v FROM "+table+" WHERE id = ?", id).Scan(pointer.Interface()); err != nil {
				t.Errorf("%s null: %v", one.cqlType, err)
			} else if !pointer.Elem().IsNil() {
				t.Errorf("%s: row %d is not null", one.cqlType, id)
			}
		}
	}
}

func TestVector(t *testing.T) {
	run(t, "CREATE TABLE vectors (id int PRIMARY KEY, v vector<float, 3>)")
	expected := []float32{0.5, -1, 2.25}
	run(t, "INSERT INTO vectors (id, v) VALUES (1, ?)", expected)
	var actual []float32
	if err := session.Query("SELECT v FROM vectors").Scan(&actual); err != nil {
		t.Fatal(err)
	}
	equal(t, "vector", actual, expected)
}

func TestCollectionsTuplesAndUserTypes(t *testing.T) {
	type address struct {
		Street string   `cql:"street"`
		Number int      `cql:"number"`
		Tags   []string `cql:"tags"`
	}
	run(t, "CREATE TYPE address (street text, number int, tags frozen<set<text>>)")
	run(t, `CREATE TABLE nested (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>,
		f frozen<list<frozen<map<int, text>>>>, t tuple<int, text>, home frozen<address>)`)
	home := address{"Main", 1, []string{"a", "b"}}
	lists, sets := []int{3, 1, 3}, []string{"x", "y"}
	maps := map[string]int64{"k": 1 << 40}
	nested := []map[int]string{{1: "one"}, {2: "two", 3: "three"}}
	run(t, "INSERT INTO nested (id, l, s, m, f, t, home) VALUES (1, ?, ?, ?, ?, (?, ?), ?)", lists, sets, maps, nested, 7, "seven", &home)
	var (
		readList   []int
		readSet    []string
		readMap    map[string]int64
		readNested []map[int]string
		number     int
		text       string
		readHome   address
	)
	query := session.Query("SELECT l, s, m, f, t, home FROM nested WHERE id = 1")
	if err := query.Scan(&readList, &readSet, &readMap, &readNested, &number, &text, &readHome); err != nil {
		t.Fatal(err)
	}
	sort.Strings(readSet)
	equal(t, "list", readList, lists)
	equal(t, "set", readSet, sets)
	equal(t, "map", readMap, maps)
	equal(t, "nested", readNested, nested)
	equal(t, "tuple", fmt.Sprintf("%d %s", number, text), "7 seven")
	equal(t, "user type", readHome, home)
}

func TestCounters(t *testing.T) {
	run(t, "CREATE TABLE counters (id int PRIMARY KEY, hits counter)")
	for _, n := range []int64{5, 7, -2} {
		run(t, "UPDATE counters SET hits = hits + ? WHERE id = 1", n)
	}
	batch := session.Batch(gocql.CounterBatch)
	batch.Query("UPDATE counters SET hits = hits + ? WHERE id = 1", int64(10))
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	equal(t, "counter", ints(t, session.Query("SELECT hits FROM counters")), []int{20})
}

func TestPagingReturnsEachRowOnce(t *testing.T) {
	run(t, "CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))")
	for c := 0; c < 95; c++ {
		run(t, "INSERT INTO pages (p, c) VALUES (1, ?)", c)
	}
	equal(t, "all pages", ints(t, session.Query("SELECT c FROM pages WHERE p = 1").PageSize(10)), upTo(95))
	seen, state, pages := []int{}, []byte(nil), 0
	for first := true; first || len(state) > 0; first = false {
		iter := session.Query("SELECT c FROM pages").PageSize(10).PageState(state).Iter()
		var c int
		for n := iter.NumRows(); n > 0; n-- {
			iter.Scan(&c)
			seen = append(seen, c)
		}
		state = iter.PageState()
		pages++
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "page by page", seen, upTo(95))
	if pages < 10 {
		t.Errorf("%d pages of at most 10 rows for 95 rows", pages)
	}
}

func TestBatches(t *testing.T) {
	run(t, "CREATE TABLE batches (p int, c int, PRIMARY KEY (p, c))")
	for c, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		batch := session.Batch(kind)
		for p := 0; p < 3; p++ {
			batch.Query("INSERT INTO batches (p, c) VALUES (?, ?)", p, c)
		}
		if err := batch.Exec(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "rows", len(ints(t, session.Query("SELECT c FROM batches"))), 6)
}

func TestLightweightTransactions(t *testing.T) {
	run(t, "CREATE TABLE accounts (id int PRIMARY KEY, owner text)")
	insert := "INSERT INTO accounts (id, owner) VALUES (1, ?) IF NOT EXISTS"
	existing := map[string]interface{}{}
	if applied, err := session.Query(insert, "ann").MapScanCAS(existing); err != nil || !applied {
		t.Fatal(applied, err)
	}
	existing = map[string]interface{}{}
	applied, err := session.Query(insert, "bob").MapScanCAS(existing)
	if err != nil || applied {
		t.Fatal(applied, err)
	}
	equal(t, "owner", existing["owner"], "ann")
	batch := session.Batch(gocql.LoggedBatch)
	batch.Query("UPDATE accounts SET owner = 'eve' WHERE id = 1 IF owner = 'ann'")
	applied, _, err = session.MapExecuteBatchCAS(batch, map[string]interface{}{})
	if err != nil || !applied {
		t.Fatal(applied, err)
	}
}

func TestErrors(t *testing.T) {
	run(t, "CREATE TABLE twice (id int PRIMARY KEY)")
	for statement, code := range map[string]int{
		"SELEC 1":                     gocql.ErrCodeSyntax,
		"SELECT * FROM missing_table": gocql.ErrCodeInvalid,
		"CREATE TABLE twice (id int PRIMARY KEY)":                      gocql.ErrCodeAlreadyExists,
		"CREATE KEYSPACE bad WITH replication = {'class': 'Nonsense'}": gocql.ErrCodeConfig,
	} {
		var refused gocql.RequestError
		if err := session.Query(statement).Exec(); !errors.As(err, &refused) || refused.Code() != code {
			t.Errorf("%s: %v instead of an error with code %#x", statement, err, code)
		}
	}
	equal(t, "rows", len(ints(t, session.Query("SELECT id FROM twice"))), 0)
}

func TestUnpreparedIsHealed(t *testing.T) {
	create, insert := "CREATE TABLE healed (id int PRIMARY KEY, v int)", "INSERT INTO healed (id, v) VALUES (?, ?)"
	run(t, create)
	run(t, insert, 1, 1)
	run(t, "DROP TABLE healed")
	run(t, create)
	run(t, insert, 2, 2)
	equal(t, "rows", ints(t, session.Query("SELECT id FROM healed")), []int{2})
}

func TestAlteredTable(t *testing.T) {
	run(t, "CREATE TABLE altered (id int PRIMARY KEY, a int)")
	run(t, "INSERT INTO altered (id, a) VALUES (?, ?)", 1, 2)
	read := func() map[string]interface{} {
		row := map[string]interface{}{}
		if err := session.Query("SELECT * FROM altered WHERE id = ?", 1).MapScan(row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	equal(t, "before", read(), map[string]interface{}{"id": 1, "a": 2})
	run(t, "ALTER TABLE altered ADD b text")
	run(t, "INSERT INTO altered (id, b) VALUES (?, ?)", 1, "new")
	equal(t, "after", read(), map[string]interface{}{"id": 1, "a": 2, "b": "new"})
}

func TestSchemaMetadata(t *testing.T) {
	run(t, `CREATE TABLE described (a int, b text, c timeuuid, d int, s text static, v list<int>,
		PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)`)
	run(t, "CREATE TYPE pair (first int, second frozen<list<text>>)")
	if err := session.AwaitSchemaAgreement(context.Background()); err != nil {
		t.Fatal(err)
	}
	// The session learns of changes a second later, by events; a new one reads the schema as it is.
	fresh, err := cluster(keyspace).CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	metadata, err := fresh.KeyspaceMetadata(keyspace)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "strategy", strings.HasSuffix(metadata.StrategyClass, "SimpleStrategy"), true)
	table := metadata.Tables["described"]
	if table == nil {
		t.Fatal("the table is not in the metadata")
	}
	equal(t, "partition key", []string{table.PartitionKey[0].Name, table.PartitionKey[1].Name}, []string{"a", "b"})
	equal(t, "clustering", fmt.Sprint(table.ClusteringColumns[0].Order, table.ClusteringColumns[1].Order), fmt.Sprint(gocql.DESC, gocql.ASC))
	equal(t, "static", table.Columns["s"].Kind, gocql.ColumnStatic)
	equal(t, "user type", metadata.UserTypes["pair"].FieldNames, []string{"first", "second"})
}

func TestSchemaEventsReachOtherClients(t *testing.T) {
	other, err := cluster(keyspace).CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	known := func() bool {
		metadata, err := other.KeyspaceMetadata(keyspace)
		return err == nil && metadata.Tables["announced"] != nil
	}
	equal(t, "known before", known(), false)
	run(t, "CREATE TABLE announced (id int PRIMARY KEY)")
	for deadline := time.Now().Add(15 * time.Second); !known(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the event of a new table did not come within 15 s")
		}
	}
}

func TestProtocolVersionsAndCompression(t *testing.T) {
	run(t, "CREATE TABLE versions (id int PRIMARY KEY, v blob)")
	large := bytes.Repeat([]byte("0123456789abcdef"), 30000)
	for _, version := range []int{3, 4, 5} {
		for name, compressor := range map[string]gocql.Compressor{"none": nil, "lz4": lz4.LZ4Compressor{}, "snappy": snappy.SnappyCompressor{}} {
			if version == 5 && name == "snappy" {
				continue
			}
			config := cluster(keyspace)
			config.ProtoVersion, config.Compressor = version, compressor
			own, err := config.CreateSession()
			if err != nil {
				t.Errorf("v%d %s: %v", version, name, err)
				continue
			}
			var read []byte
			if err := own.Query("INSERT INTO versions (id, v) VALUES (?, ?)", version, large).Exec(); err != nil {
				t.Errorf("v%d %s: %v", version, name, err)
			} else if err := own.Query("SELECT v FROM versions WHERE id = ?", version).Scan(&read); err != nil {
				t.Errorf("v%d %s: %v", version, name, err)
			} else if !bytes.Equal(read, large) {
				t.Errorf("v%d %s: another value came back", version, name)
			}
			own.Close()
		}
	}
}

func TestTracing(t *testing.T) {
	run(t, "CREATE TABLE traced (id int PRIMARY KEY)")
	var written bytes.Buffer
	tracer := gocql.NewTraceWriter(session, &written)
	if err := session.Query("SELECT * FROM traced").Trace(tracer).Exec(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(written.String(), "Tracing session") {
		t.Errorf("trace: %q", written.String())
	}
}

func TestReconnectsAfterARestart(t *testing.T) {
	restart := os.Getenv("SERVER_RESTART")
	if restart == "" {
		t.Skip("no SERVER_RESTART command")
	}
	run(t, "CREATE TABLE survivors (id int PRIMARY KEY, v text)")
	insert := "INSERT INTO survivors (id, v) VALUES (?, ?)"
	run(t, insert, 1, "before")
	if output, err := exec.Command("sh", "-c", restart).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	deadline := time.Now().Add(30 * time.Second)
	for err := error(nil); ; {
		if err = session.Query(insert, 2, "after").Exec(); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	equal(t, "rows", len(ints(t, session.Query("SELECT id FROM survivors"))), 2)
}
