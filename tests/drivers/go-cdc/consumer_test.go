// Package consumers runs the library scylla-cdc-go, as it is, against the change feed of a server named by CQL_HOST and CQL_PORT.
//
// CDC_WRITE_SECONDS, if set, is how long a test writes during which whoever runs it changes the cluster, so that there are new
// generations of streams. CDC_REPLICAS is the number of replicas.
package consumers

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

const (
	keyspace = "suite_go_cdc"
	// How old changes are when they are read, and how often they are looked for.
	confidence = 2 * time.Second
	delay      = 100 * time.Millisecond
	partitions = 8
)

var session *gocql.Session

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func connect() (*gocql.Session, error) {
	config := gocql.NewCluster(environment("CQL_HOST", "127.0.0.1"))
	config.Port, _ = strconv.Atoi(environment("CQL_PORT", "9042"))
	config.Timeout = 30 * time.Second
	config.ConnectTimeout = 10 * time.Second
	config.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	if authority := os.Getenv("CQL_AUTHORITY"); authority != "" {
		config.SslOpts = &gocql.SslOptions{CaPath: authority, EnableHostVerification: true}
		config.Authenticator = gocql.PasswordAuthenticator{Username: os.Getenv("CQL_USER"), Password: os.Getenv("CQL_PASSWORD")}
	}
	return config.CreateSession()
}

func TestMain(m *testing.M) {
	var err error
	if session, err = connect(); err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	for _, statement := range []string{
		"DROP KEYSPACE IF EXISTS " + keyspace,
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': " + environment("CDC_REPLICAS", "1") + "}",
	} {
		if err := session.Query(statement).Exec(); err != nil {
			fmt.Println(statement, err)
			os.Exit(1)
		}
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

// A table whose feed has images.
func createTable(t *testing.T, name string) {
	t.Helper()
	run(t, "CREATE TABLE "+keyspace+"."+name+" (p int, c int, v text, n int, s int static, tags set<text>, attrs map<text, int>, "+
		"items list<int>, pair tuple<int, text>, PRIMARY KEY (p, c)) "+
		"WITH cdc = {'enabled': 'true', 'preimage': 'true', 'postimage': 'true'}")
}

// The statements that every partition gets, %d is the partition, and what the feed has of each.
var workload = []struct {
	statement string
	deltas    []string
}{
	{"INSERT INTO t (p, c, v, n) VALUES (%d, 1, 'a', 1)", []string{"INSERT c=1 v=a n=1"}},
	{"UPDATE t SET n = 2 WHERE p = %d AND c = 1", []string{"UPDATE c=1 n=2"}},
	{"UPDATE t SET tags = tags + {'x', 'y'} WHERE p = %d AND c = 1", []string{"UPDATE c=1 tags+[x y]"}},
	{"UPDATE t SET tags = tags - {'x'} WHERE p = %d AND c = 1", []string{"UPDATE c=1 tags-[x]"}},
	{"UPDATE t SET tags = {'z'} WHERE p = %d AND c = 1", []string{"UPDATE c=1 tags=[z]"}},
	{"UPDATE t SET attrs['k'] = 7 WHERE p = %d AND c = 1", []string{"UPDATE c=1 attrs+map[k:7]"}},
	{"DELETE attrs['k'] FROM t WHERE p = %d AND c = 1", []string{"UPDATE c=1 attrs-[k]"}},
	{"UPDATE t SET items = items + [5, 6] WHERE p = %d AND c = 1", []string{"UPDATE c=1 items+[5 6]"}},
	{"UPDATE t SET pair = (1, 'one') WHERE p = %d AND c = 1", []string{"UPDATE c=1 pair=(1 one)"}},
	{"DELETE v FROM t WHERE p = %d AND c = 1", []string{"UPDATE c=1 v deleted"}},
	{"UPDATE t USING TTL 1000 SET n = 3 WHERE p = %d AND c = 1", []string{"UPDATE c=1 n=3 ttl=1000"}},
	{"UPDATE t SET s = 9 WHERE p = %d", []string{"UPDATE s=9"}},
	{"INSERT INTO t (p, c, v) VALUES (%d, 2, 'b') IF NOT EXISTS", []string{"INSERT c=2 v=b"}},
	{"BEGIN BATCH INSERT INTO t (p, c, v) VALUES (%[1]d, 3, 'c'); INSERT INTO t (p, c, v) VALUES (%[1]d, 4, 'd'); APPLY BATCH",
		[]string{"INSERT c=3 v=c", "INSERT c=4 v=d"}},
	{"DELETE FROM t WHERE p = %d AND c = 2", []string{"ROW_DELETE c=2"}},
	{"DELETE FROM t WHERE p = %d AND c >= 3 AND c < 5",
		[]string{"RANGE_DELETE_START_INCLUSIVE c=3", "RANGE_DELETE_END_EXCLUSIVE c=5"}},
	{"DELETE FROM t WHERE p = %d", []string{"PARTITION_DELETE"}},
}

func write(t *testing.T, table string, partition int) (expected []string) {
	t.Helper()
	for _, step := range workload {
		statement := fmt.Sprintf(step.statement, partition)
		for _, before := range []string{"INTO t ", "UPDATE t ", "FROM t "} {
			statement = strings.ReplaceAll(statement, before, strings.Replace(before, "t ", keyspace+"."+table+" ", 1))
		}
		run(t, statement)
		expected = append(expected, step.deltas...)
	}
	return expected
}

// What a delta says.
func describe(row *scyllacdc.ChangeRow) string {
	parts := []string{row.GetOperation().String()}
	add := func(format string, values ...interface{}) { parts = append(parts, fmt.Sprintf(format, values...)) }
	for _, name := range []string{"c", "v", "n", "s"} {
		change := row.GetAtomicChange(name)
		if value := reflect.ValueOf(change.Value); value.IsValid() && !value.IsNil() {
			add("%s=%v", name, value.Elem())
		}
		if change.IsDeleted {
			add("%s deleted", name)
		}
	}
	if pair, _ := row.GetAtomicChange("pair").Value.([]interface{}); pair != nil {
		add("pair=(%v %v)", *pair[0].(*int), *pair[1].(*string))
	}
	tags := row.GetSetChange("tags")
	if added, _ := tags.AddedElements.([]string); len(added) > 0 {
		sort.Strings(added)
		add("tags%s%v", map[bool]string{false: "+", true: "="}[tags.IsReset], added)
	}
	if removed, _ := tags.RemovedElements.([]string); len(removed) > 0 {
		add("tags-%v", removed)
	}
	attrs := row.GetMapChange("attrs")
	if added, _ := attrs.AddedElements.(map[string]int); len(added) > 0 {
		add("attrs+%v", added)
	}
	if removed, _ := attrs.RemovedElements.([]string); len(removed) > 0 {
		add("attrs-%v", removed)
	}
	if added, _ := row.GetListChange("items").AppendedElements.(map[gocql.UUID]int); len(added) > 0 {
		times := make([]gocql.UUID, 0, len(added))
		for at := range added {
			times = append(times, at)
		}
		slices.SortFunc(times, scyllacdc.CompareTimeUUID)
		items := make([]int, 0, len(added))
		for _, at := range times {
			items = append(items, added[at])
		}
		add("items+%v", items)
	}
	if row.GetTTL() != 0 {
		add("ttl=%d", row.GetTTL())
	}
	return strings.Join(parts, " ")
}

// What was consumed, by partition.
type collector struct {
	mutex   sync.Mutex
	deltas  map[int][]string
	streams map[int]string
	last    map[string]gocql.UUID
	changes []scyllacdc.Change
	faults  []string
	// How many generations were read. With the next one partitions have other streams.
	generations int
}

func newCollector() *collector {
	return &collector{deltas: map[int][]string{}, streams: map[int]string{}, last: map[string]gocql.UUID{}}
}

func (c *collector) fault(format string, values ...interface{}) {
	c.faults = append(c.faults, fmt.Sprintf(format, values...))
}

func (c *collector) take(change scyllacdc.Change) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.changes = append(c.changes, change)
	stream := change.StreamID.String()
	if last, ok := c.last[stream]; ok && scyllacdc.CompareTimeUUID(last, change.Time) >= 0 {
		c.fault("stream %s: %s after %s", stream, change.Time, last)
	}
	c.last[stream] = change.Time
	rows := slices.Concat(change.PreImage, change.Delta, change.PostImage)
	numbers := make([]int, 0, len(rows))
	for _, row := range rows {
		numbers = append(numbers, int(row.GetSeqNo()))
		if row.GetEndOfBatch() != (int(row.GetSeqNo()) == len(rows)-1) {
			c.fault("row %d of %d: end of batch is %v", row.GetSeqNo(), len(rows), row.GetEndOfBatch())
		}
	}
	sort.Ints(numbers)
	for i, number := range numbers {
		if i != number {
			c.fault("rows of one change are numbered %v", numbers)
			break
		}
	}
	for _, row := range change.Delta {
		value, _ := row.GetValue("p")
		partition := *value.(*int)
		if known, ok := c.streams[partition]; ok && known != stream {
			c.fault("partition %d is in the streams %s and %s", partition, known, stream)
		}
		c.streams[partition] = stream
		c.deltas[partition] = append(c.deltas[partition], describe(row))
	}
}

// The library's own parts: a factory of consumers, and a log whose complaints are faults.
type consumer struct {
	*collector
	reporter *scyllacdc.ProgressReporter
}

func (c *consumer) Consume(ctx context.Context, change scyllacdc.Change) error {
	c.take(change)
	return c.reporter.MarkProgress(ctx, scyllacdc.Progress{LastProcessedRecordTime: change.Time})
}

func (c *consumer) End() error { return nil }

func (c *collector) CreateChangeConsumer(_ context.Context, input scyllacdc.CreateChangeConsumerInput) (scyllacdc.ChangeConsumer, error) {
	return &consumer{c, input.ProgressReporter}, nil
}

func (c *collector) Printf(format string, values ...interface{}) {
	line := fmt.Sprintf(format, values...)
	fmt.Println("  ", line)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if strings.HasPrefix(line, "starting reading generation") {
		c.generations++
		clear(c.streams)
	}
	if strings.Contains(line, "error") && !strings.Contains(line, "TTL") {
		c.fault("the library says: %s", line)
	}
}

// Starts to consume the changes of a table; the function that is returned waits until all that was written before is consumed.
func consume(t *testing.T, table string, progress scyllacdc.ProgressManager, into *collector) (finish func()) {
	t.Helper()
	reader, err := scyllacdc.NewReader(context.Background(), &scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{keyspace + "." + table},
		ChangeConsumerFactory: into,
		ProgressManager:       progress,
		Logger:                into,
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:     confidence,
			PostNonEmptyQueryDelay:   delay,
			PostEmptyQueryDelay:      delay,
			PostFailedQueryDelay:     delay,
			QueryTimeWindowSize:      10 * time.Second,
			ChangeAgeLimit:           20 * time.Second,
			PostGenerationFetchDelay: time.Second,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- reader.Run(context.Background()) }()
	return func() {
		t.Helper()
		reader.StopAt(time.Now())
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the reader: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the reader does not stop")
		}
	}
}

func equal(t *testing.T, what string, actual, expected interface{}) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Errorf("%s:\n%v instead of\n%v", what, actual, expected)
	}
}

// A reader that is stopped before it has begun reads nothing.
func (c *collector) awaitChange(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	count := func() int {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return len(c.changes)
	}
	for count() == 0 {
		if time.Now().After(deadline) {
			t.Fatal("no change arrives")
		}
		time.Sleep(delay)
	}
}

func (c *collector) check(t *testing.T) {
	t.Helper()
	for _, fault := range c.faults {
		t.Error(fault)
	}
}

func TestEveryChangeArrivesOnceAndInOrder(t *testing.T) {
	createTable(t, "changes")
	consumed := newCollector()
	finish := consume(t, "changes", nil, consumed)
	expected := map[int][]string{}
	for partition := 0; partition < partitions; partition++ {
		expected[partition] = write(t, "changes", partition)
	}
	finish()
	consumed.check(t)
	for partition := 0; partition < partitions; partition++ {
		equal(t, fmt.Sprintf("partition %d", partition), consumed.deltas[partition], expected[partition])
	}
	equal(t, "partitions", len(consumed.deltas), partitions)
}

func TestImagesAreThoseOfTheRow(t *testing.T) {
	createTable(t, "images")
	consumed := newCollector()
	finish := consume(t, "images", nil, consumed)
	run(t, "INSERT INTO "+keyspace+".images (p, c, v, n, tags) VALUES (1, 1, 'a', 1, {'x'})")
	run(t, "UPDATE "+keyspace+".images SET n = 2, tags = tags + {'y'} WHERE p = 1 AND c = 1")
	finish()
	consumed.check(t)
	if len(consumed.changes) != 2 {
		t.Fatalf("%d changes instead of 2", len(consumed.changes))
	}
	image := func(rows []*scyllacdc.ChangeRow, column string) interface{} {
		if len(rows) != 1 {
			return fmt.Sprintf("%d images", len(rows))
		}
		value, _ := rows[0].GetValue(column)
		if value := reflect.Indirect(reflect.ValueOf(value)); value.IsValid() {
			return value.Interface()
		}
		return nil
	}
	insert, update := consumed.changes[0], consumed.changes[1]
	equal(t, "images of a new row from before", len(insert.PreImage), 0)
	equal(t, "v after the insert", image(insert.PostImage, "v"), "a")
	equal(t, "n before the update", image(update.PreImage, "n"), 1)
	equal(t, "tags before the update", image(update.PreImage, "tags"), []string{"x"})
	equal(t, "n after the update", image(update.PostImage, "n"), 2)
	equal(t, "v after the update", image(update.PostImage, "v"), "a")
	equal(t, "tags after the update", image(update.PostImage, "tags"), []string{"x", "y"})
}

func TestABatchIsOneChangeInEachOfItsStreams(t *testing.T) {
	createTable(t, "batches")
	consumed := newCollector()
	finish := consume(t, "batches", nil, consumed)
	statement := "BEGIN BATCH "
	for partition := 0; partition < partitions; partition++ {
		for row := 0; row < 3; row++ {
			statement += fmt.Sprintf("INSERT INTO %s.batches (p, c, n) VALUES (%d, %d, 0); ", keyspace, partition, row)
		}
	}
	run(t, statement+"APPLY BATCH")
	finish()
	consumed.check(t)
	streams := map[string]bool{}
	for _, change := range consumed.changes {
		if streams[change.StreamID.String()] {
			t.Errorf("stream %s has the batch in several parts", change.StreamID)
		}
		streams[change.StreamID.String()] = true
	}
	for partition := 0; partition < partitions; partition++ {
		found := consumed.deltas[partition]
		sort.Strings(found)
		equal(t, fmt.Sprintf("partition %d", partition), found, []string{"INSERT c=0 n=0", "INSERT c=1 n=0", "INSERT c=2 n=0"})
	}
}

func TestAConsumerGoesOnFromItsProgress(t *testing.T) {
	createTable(t, "progress")
	manager := func() scyllacdc.ProgressManager {
		manager, err := scyllacdc.NewTableBackedProgressManager(session, keyspace+".saved_progress", "suite")
		if err != nil {
			t.Fatal(err)
		}
		return manager
	}
	insert := func(row int) {
		run(t, "INSERT INTO "+keyspace+".progress (p, c, n) VALUES (?, ?, ?)", row%partitions, row, row)
	}
	const rows = 40
	for half := 0; half < 2; half++ {
		consumed := newCollector()
		finish := consume(t, "progress", manager(), consumed)
		expected := map[int][]string{}
		for row := half * rows; row < (half+1)*rows; row++ {
			insert(row)
			expected[row%partitions] = append(expected[row%partitions], fmt.Sprintf("INSERT c=%d n=%d", row, row))
		}
		finish()
		consumed.check(t)
		equal(t, fmt.Sprintf("half %d", half), consumed.deltas, expected)
	}
}

// The session knows the keyspace before there is a feed: it hears of the log as of any other table.
func TestAFeedIsBegunLater(t *testing.T) {
	run(t, "CREATE TABLE "+keyspace+".later (p int PRIMARY KEY, n int)")
	run(t, "INSERT INTO "+keyspace+".later (p, n) VALUES (1, 1)")
	if _, err := session.KeyspaceMetadata(keyspace); err != nil {
		t.Fatal(err)
	}
	run(t, "ALTER TABLE "+keyspace+".later WITH cdc = {'enabled': 'true'}")
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, err := session.TableMetadata(keyspace, "later_scylla_cdc_log")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the log is not known: ", err)
		}
		time.Sleep(delay)
	}
	consumed := newCollector()
	finish := consume(t, "later", nil, consumed)
	run(t, "INSERT INTO "+keyspace+".later (p, n) VALUES (1, 2)")
	consumed.awaitChange(t)
	finish()
	consumed.check(t)
	if len(consumed.changes) != 1 || len(consumed.changes[0].Delta) != 1 {
		t.Fatalf("changes: %v", consumed.changes)
	}
	equal(t, "value", *consumed.changes[0].Delta[0].GetAtomicChange("n").Value.(*int), 2)
}

func TestGenerationsAreFollowed(t *testing.T) {
	seconds, err := strconv.Atoi(environment("CDC_WRITE_SECONDS", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if seconds == 0 {
		t.Skip("CDC_WRITE_SECONDS is not set")
	}
	createTable(t, "generations")
	consumed := newCollector()
	finish := consume(t, "generations", nil, consumed)
	expected := map[int][]string{}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for row := 0; time.Now().Before(end); row++ {
		partition := row % 64
		run(t, "INSERT INTO "+keyspace+".generations (p, c, n) VALUES (?, ?, ?)", partition, row, row)
		expected[partition] = append(expected[partition], fmt.Sprintf("INSERT c=%d n=%d", row, row))
	}
	finish()
	consumed.check(t)
	if consumed.generations < 2 {
		t.Errorf("%d generations were read", consumed.generations)
	}
	for partition := range expected {
		equal(t, fmt.Sprintf("partition %d", partition), consumed.deltas[partition], expected[partition])
	}
}
