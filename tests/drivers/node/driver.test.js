// The Node.js driver (cassandra-driver) against a server named by CQL_HOST and CQL_PORT. SERVER_RESTART, if set,
// is a command that restarts the server in place and returns when it serves again.
'use strict';

const assert = require('node:assert/strict');
const { execSync } = require('node:child_process');
const fs = require('node:fs');
const { after, before, test } = require('node:test');
const path = require('node:path');

// The driver is installed outside this folder: NODE_PATH names the place.
const cassandra = require(require.resolve('cassandra-driver', { paths: [path.join(__dirname, 'node_modules'), process.env.NODE_PATH || '.'] }));
const { types } = cassandra;

const HOST = process.env.CQL_HOST || '127.0.0.1';
const PORT = Number(process.env.CQL_PORT || 9042);
const KEYSPACE = 'suite_node';
const REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
const prepare = { prepare: true };
// Set where the server requires TLS and logins.
const AUTHORITY = process.env.CQL_AUTHORITY;
const secure = AUTHORITY && {
  sslOptions: { ca: [fs.readFileSync(AUTHORITY)], rejectUnauthorized: true },
  authProvider: new cassandra.auth.PlainTextAuthProvider(process.env.CQL_USER, process.env.CQL_PASSWORD),
};

let client;

function connect(options = {}) {
  return new cassandra.Client({
    contactPoints: [HOST],
    localDataCenter: process.env.CQL_DATA_CENTER || 'datacenter1',
    protocolOptions: { port: PORT, ...options.protocolOptions },
    refreshSchemaDelay: 50,
    policies: { reconnection: new cassandra.policies.reconnection.ConstantReconnectionPolicy(100) },
    socketOptions: { readTimeout: 30000 },
    ...secure,
    ...options.client,
  });
}

async function waitUntil(condition, what, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

before(async () => {
  const first = connect();
  await first.connect();
  await first.execute(`DROP KEYSPACE IF EXISTS ${KEYSPACE}`);
  await first.execute(`CREATE KEYSPACE ${KEYSPACE} WITH replication = ${REPLICATION}`);
  await first.shutdown();
  client = connect({ client: { keyspace: KEYSPACE } });
  await client.connect();
});

after(async () => {
  await client.execute(`DROP KEYSPACE IF EXISTS ${KEYSPACE}`);
  await client.shutdown();
});

test('topology', async () => {
  const state = client.getState();
  assert.equal(state.getConnectedHosts().length, 1);
  const host = state.getConnectedHosts()[0];
  assert.ok(host.isUp() && host.hostId && host.datacenter && host.rack && host.tokens.length > 0);
  assert.match(host.cassandraVersion, /^\d+\.\d+/);
  const replicas = client.metadata.getReplicas(KEYSPACE, Buffer.from([0, 0, 0, 1]));
  assert.equal(replicas.length, 1);
});

test('native types', async () => {
  const values = {
    ascii: 'plain',
    bigint: types.Long.fromString('-9223372036854775808'),
    blob: Buffer.from([0, 255, 16]),
    boolean: true,
    date: types.LocalDate.fromString('1969-12-31'),
    decimal: types.BigDecimal.fromString('-12345678901234567890.000123'),
    double: -2.5e300,
    duration: types.Duration.fromString('14mo3d1s7ns'),
    float: 0.5,
    inet: types.InetAddress.fromString('2001:db8::7f'),
    int: -2147483648,
    smallint: -32768,
    text: 'krem\u00f3wki \u2603',
    time: types.LocalTime.fromString('23:59:59.999999999'),
    timestamp: new Date('2024-02-29T23:59:59.123Z'),
    timeuuid: types.TimeUuid.fromString('30821634-13ad-11eb-adc1-0242ac120002'),
    tinyint: -128,
    uuid: types.Uuid.fromString('8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11'),
    varint: types.Integer.fromString('-1' + '0'.repeat(40)),
  };
  const names = Object.keys(values);
  await client.execute(`CREATE TABLE native (id int PRIMARY KEY, ${names.map((n) => `v_${n} ${n}`).join(', ')})`);
  const columns = names.map((n) => `v_${n}`).join(', ');
  const insert = `INSERT INTO native (id, ${columns}) VALUES (?${', ?'.repeat(names.length)})`;
  await client.execute(insert, [1, ...Object.values(values)], prepare);
  await client.execute(insert, [2, ...names.map(() => null)], prepare);
  await client.execute(insert, [3, ...names.map(() => types.unset)], prepare);
  const row = (await client.execute(`SELECT ${columns} FROM native WHERE id = 1`)).first();
  for (const name of names) {
    assert.equal(String(row[`v_${name}`]), String(values[name]), name);
  }
  for (const id of [2, 3]) {
    const empty = (await client.execute(`SELECT ${columns} FROM native WHERE id = ?`, [id], prepare)).first();
    assert.ok(names.every((name) => empty[`v_${name}`] === null));
  }
});

test('unprepared statements with values', async () => {
  await client.execute('CREATE TABLE simple (id int PRIMARY KEY, name text, score double)');
  const hints = { hints: ['int', 'text', 'double'] };
  await client.execute('INSERT INTO simple (id, name, score) VALUES (?, ?, ?)', [1, 'ann', 0.5], hints);
  const named = await client.execute('SELECT name, score FROM simple WHERE id = :id', { id: 1 }, { hints: { id: 'int' } });
  assert.deepEqual({ ...named.first() }, { name: 'ann', score: 0.5 });
});

test('vector', async () => {
  await client.execute('CREATE TABLE vectors (id int PRIMARY KEY, v vector<float, 3>)');
  const vector = new types.Vector(new Float32Array([0.5, -1, 2.25]));
  await client.execute('INSERT INTO vectors (id, v) VALUES (1, ?)', [vector], prepare);
  const row = (await client.execute('SELECT v FROM vectors')).first();
  assert.deepEqual([...row.v], [0.5, -1, 2.25]);
});

test('collections, tuples and user types', async () => {
  await client.execute('CREATE TYPE address (street text, number int, tags frozen<set<text>>)');
  await client.execute(`CREATE TABLE nested (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>,
    f frozen<list<frozen<map<int, text>>>>, t tuple<int, text, boolean>, home frozen<address>)`);
  const values = {
    id: 1,
    l: [3, 1, 3],
    s: ['x', 'y'],
    m: { k: types.Long.fromNumber(2 ** 40) },
    f: [{ 1: 'one' }, { 2: 'two' }],
    t: new types.Tuple(7, null, true),
    home: { street: 'Main', number: 1, tags: ['a', 'b'] },
  };
  await client.execute('INSERT INTO nested (id, l, s, m, f, t, home) VALUES (:id, :l, :s, :m, :f, :t, :home)', values, prepare);
  const row = (await client.execute('SELECT * FROM nested WHERE id = 1')).first();
  assert.deepEqual(row.l, [3, 1, 3]);
  assert.deepEqual([...row.s].sort(), ['x', 'y']);
  assert.equal(row.m.k.toString(), String(2 ** 40));
  assert.deepEqual(row.f, [{ 1: 'one' }, { 2: 'two' }]);
  assert.deepEqual(row.t.values(), [7, null, true]);
  assert.deepEqual({ ...row.home, tags: [...row.home.tags].sort() }, values.home);
});

test('counters', async () => {
  await client.execute('CREATE TABLE counters (id int PRIMARY KEY, hits counter)');
  for (const n of [5, 7, -2]) {
    await client.execute('UPDATE counters SET hits = hits + ? WHERE id = 1', [n], prepare);
  }
  const update = { query: 'UPDATE counters SET hits = hits + ? WHERE id = 1', params: [10] };
  await client.batch([update], { prepare: true, counter: true });
  assert.equal((await client.execute('SELECT hits FROM counters')).first().hits.toNumber(), 20);
});

test('paging returns each row once', async () => {
  await client.execute('CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))');
  for (let c = 0; c < 95; c += 1) {
    await client.execute('INSERT INTO pages (p, c) VALUES (1, ?)', [c], prepare);
  }
  const seen = [];
  let state;
  let count = 0;
  do {
    const page = await client.execute('SELECT c FROM pages WHERE p = 1', [], { prepare: true, fetchSize: 10, pageState: state });
    assert.ok(page.rows.length <= 10);
    seen.push(...page.rows.map((row) => row.c));
    state = page.pageState;
    count += 1;
  } while (state);
  assert.deepEqual(seen, [...Array(95).keys()]);
  assert.ok(count >= 10);
  const iterated = [];
  for await (const row of await client.execute('SELECT c FROM pages', [], { fetchSize: 10 })) {
    iterated.push(row.c);
  }
  assert.deepEqual(iterated, [...Array(95).keys()]);
});

test('batches', async () => {
  await client.execute('CREATE TABLE batches (p int, c int, v text, PRIMARY KEY (p, c))');
  for (const logged of [true, false]) {
    const queries = [1, 2, 3].map((p) => ({ query: 'INSERT INTO batches (p, c, v) VALUES (?, 1, ?)', params: [p, String(logged)] }));
    await client.batch(queries, { prepare: true, logged });
    const rows = (await client.execute('SELECT v FROM batches')).rows;
    assert.deepEqual(rows.map((row) => row.v), Array(3).fill(String(logged)));
  }
});

test('lightweight transactions', async () => {
  await client.execute('CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int)');
  const insert = 'INSERT INTO accounts (id, owner, balance) VALUES (1, ?, ?) IF NOT EXISTS';
  assert.ok((await client.execute(insert, ['ann', 10], prepare)).wasApplied());
  const second = await client.execute(insert, ['bob', 0], prepare);
  assert.ok(!second.wasApplied());
  assert.equal(second.first().owner, 'ann');
  const update = 'UPDATE accounts SET balance = ? WHERE id = 1 IF balance = ?';
  assert.ok((await client.execute(update, [20, 10], prepare)).wasApplied());
  assert.ok(!(await client.execute(update, [30, 10], prepare)).wasApplied());
});

test('errors', async () => {
  const { responseErrorCodes: codes } = types;
  await assert.rejects(client.execute('SELEC 1'), { code: codes.syntaxError });
  await assert.rejects(client.execute('SELECT * FROM missing_table'), { code: codes.invalid });
  await client.execute('CREATE TABLE twice (id int PRIMARY KEY)');
  await assert.rejects(client.execute('CREATE TABLE twice (id int PRIMARY KEY)'), { code: codes.alreadyExists, table: 'twice' });
  await assert.rejects(client.execute("CREATE KEYSPACE bad WITH replication = {'class': 'Nonsense'}"), { code: codes.configError });
  assert.equal((await client.execute('SELECT * FROM twice')).rowLength, 0);
});

test('unprepared statements are prepared again', async () => {
  const create = 'CREATE TABLE healed (id int PRIMARY KEY, v int)';
  const insert = 'INSERT INTO healed (id, v) VALUES (?, ?)';
  await client.execute(create);
  await client.execute(insert, [1, 1], prepare);
  await client.execute('DROP TABLE healed');
  await client.execute(create);
  await client.execute(insert, [2, 2], prepare);
  assert.deepEqual((await client.execute('SELECT id FROM healed')).rows.map((row) => row.id), [2]);
});

test('schema metadata', async () => {
  await client.execute(`CREATE TABLE described (a int, b text, c timeuuid, d int, s text static, v list<int>,
    PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a table' AND gc_grace_seconds = 7`);
  await client.execute('CREATE TYPE pair (left int, right frozen<list<text>>)');
  const table = await client.metadata.getTable(KEYSPACE, 'described');
  assert.deepEqual(table.partitionKeys.map((column) => column.name), ['a', 'b']);
  assert.deepEqual(table.clusteringKeys.map((column) => column.name), ['c', 'd']);
  assert.deepEqual(table.clusteringOrder, ['DESC', 'ASC']);
  assert.ok(table.columnsByName.s.isStatic && !table.isCompact);
  assert.equal(table.comment, 'a table');
  assert.equal(table.gcGraceSeconds, 7);
  const pair = await client.metadata.getUdt(KEYSPACE, 'pair');
  assert.deepEqual(pair.fields.map((field) => field.name), ['left', 'right']);
  assert.equal(await client.metadata.getTable(KEYSPACE, 'absent'), null);
  await client.metadata.refreshKeyspaces();
  assert.match(client.metadata.keyspaces[KEYSPACE].strategy, /SimpleStrategy$/);
});

test('protocol versions', async () => {
  for (const maxVersion of [3, 4]) {
    const own = connect({ protocolOptions: { maxVersion }, client: { keyspace: KEYSPACE } });
    await own.connect();
    try {
      const large = 'x'.repeat(300_000);
      await own.execute('CREATE TABLE IF NOT EXISTS versions (id int PRIMARY KEY, v text)');
      await own.execute('INSERT INTO versions (id, v) VALUES (?, ?)', [maxVersion, large], prepare);
      const select = () => own.execute('SELECT v FROM versions WHERE id = ?', [maxVersion], prepare);
      const answers = await Promise.all([...Array(50)].map(select));
      assert.ok(answers.every((answer) => answer.first().v === large));
      assert.equal(own.controlConnection.protocolVersion, maxVersion);
    } finally {
      await own.shutdown();
    }
  }
});

test('tracing', async () => {
  await client.execute('CREATE TABLE traced (id int PRIMARY KEY)');
  const result = await client.execute('SELECT * FROM traced', [], { traceQuery: true });
  const trace = await client.metadata.getTrace(result.info.traceId);
  assert.ok(trace.duration !== null && trace.startedAt && trace.events.length > 0);
});

test('schema events reach other clients', async () => {
  const other = connect();
  await other.connect();
  const name = `${KEYSPACE}_events`;
  try {
    await client.execute(`DROP KEYSPACE IF EXISTS ${name}`);
    await client.execute(`CREATE KEYSPACE ${name} WITH replication = ${REPLICATION}`);
    await waitUntil(() => name in other.metadata.keyspaces, 'the event of a new keyspace');
    await client.execute(`CREATE TABLE ${name}.t (id int PRIMARY KEY)`);
    const columns = async () => (await other.metadata.getTable(name, 't'))?.columns.length;
    await waitUntil(async () => (await columns()) === 1, 'a new table');
    await client.execute(`ALTER TABLE ${name}.t ADD v int`);
    await waitUntil(async () => (await columns()) === 2, 'the event of a changed table');
    await client.execute(`DROP KEYSPACE ${name}`);
    await waitUntil(() => !(name in other.metadata.keyspaces), 'the event of a dropped keyspace');
  } finally {
    await other.shutdown();
  }
});

test('reconnects after a restart', { skip: !process.env.SERVER_RESTART && 'no SERVER_RESTART command' }, async () => {
  await client.execute('CREATE TABLE survivors (id int PRIMARY KEY, v text)');
  const insert = (id, v) => client.execute('INSERT INTO survivors (id, v) VALUES (?, ?)', [id, v], prepare);
  await insert(1, 'before');
  execSync(process.env.SERVER_RESTART, { stdio: 'inherit' });
  await waitUntil(() => insert(2, 'after').then(() => true, () => false), 'a request after the restart', 30);
  const rows = (await client.execute('SELECT v FROM survivors')).rows;
  assert.deepEqual(rows.map((row) => row.v).sort(), ['after', 'before']);
});
