"""What the data directories of a1a536a hold: the statements that made them, and what is read from them.

`FLUSHED` went to table files (each group to one of its own), `LOGGED` stayed in the commit log; then came a kill -9. `EXPECTED`
is what each query answers, as JSON. Timestamps are given, so that nothing depends on the day; what the default of `g.lives`
lets live does so until 2045.
"""

# Hints and batches are given up when most of this time has passed; tombstones are kept as long.
FOR_EVER = "gc_grace_seconds = 1000000000"

ONE_NODE_SCHEMA = [
    "CREATE KEYSPACE g WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE g.mark (name text, weight int)",
    "CREATE TYPE g.place (street text, number int, tags frozen<set<text>>, marks frozen<list<frozen<mark>>>)",
    "CREATE TABLE g.events (day text, hour int, id uuid, note text, kind text STATIC, place frozen<place>, "
    "PRIMARY KEY (day, hour, id)) WITH CLUSTERING ORDER BY (hour DESC, id ASC) AND comment = 'it''s'",
    "CREATE TABLE g.types (k text PRIMARY KEY, a ascii, bi bigint, b blob, bo boolean, d date, de decimal, du duration, "
    "dou double, f float, i inet, n int, s smallint, t time, ts timestamp, tu timeuuid, ti tinyint, u uuid, v varchar, "
    "vi varint) WITH compression = {'enabled': 'false'}",
    "CREATE TABLE g.collections (k1 int, k2 text, l list<int>, s set<text>, m map<text, int>, f frozen<map<int, list<text>>>, "
    "p place, t tuple<int, text>, v vector<float, 3>, PRIMARY KEY ((k1, k2))) "
    "WITH compression = {'class': 'ZstdCompressor'} AND compaction = {'class': 'LeveledCompactionStrategy'}",
    "CREATE TABLE g.counts (k int, c int, hits counter, misses counter, total counter STATIC, PRIMARY KEY (k, c))",
    f"CREATE TABLE g.removed (k int, c int, v text, s text STATIC, m map<int, int>, PRIMARY KEY (k, c)) WITH {FOR_EVER}",
    "CREATE TABLE g.lives (k int PRIMARY KEY, v text, w text) WITH default_time_to_live = 600000000 "
    "AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_size': '1'}",
    f"CREATE TABLE g.accounts (owner text, id int, balance int, limit_ int STATIC, PRIMARY KEY (owner, id)) WITH {FOR_EVER}",
    "CREATE TABLE g.altered (k int PRIMARY KEY, kept text, dropped text, again text)",
    f"CREATE TABLE g.pairs (side text, number int, v int, PRIMARY KEY ((side, number))) WITH {FOR_EVER}",
    "CREATE TABLE g.gone (k int PRIMARY KEY)",
    "CREATE TABLE g.emptied (k int PRIMARY KEY)",
]

_UUID = "00112233-4455-6677-8899-aabbccddee0{}"


def _event(day, hour, number, note, micros, place="null"):
    return (
        f"INSERT INTO g.events (day, hour, id, note, place) VALUES ('{day}', {hour}, {_UUID.format(number)}, '{note}', {place}) "
        f"USING TIMESTAMP {micros}"
    )


_PLACE = "{street: 'Elm', number: 7, tags: {'old', 'red'}, marks: [{name: 'a', weight: 1}, {name: 'b', weight: null}]}"

FLUSHED = [
    [
        _event("monday", 8, 1, "early", 1000, _PLACE),
        _event("monday", 9, 1, "old", 1000),
        _event("monday", 9, 2, "second", 1000),
        _event("tuesday", 23, 3, "late", 1000),
        "UPDATE g.events USING TIMESTAMP 1000 SET kind = 'work' WHERE day = 'monday'",
        "INSERT INTO g.types (k, a, bi, b, bo, d, de, du, dou, f, i, n, s, t, ts, tu, ti, u, v, vi) VALUES ('all', 'ascii', "
        "-9223372036854775808, 0x00ff, true, '2024-02-29', -12.340, 1y2mo3d4h, 0.1, 0.5, '2001:db8::1', -2147483648, -32768, "
        "'23:59:59.123456789', '2024-02-29T12:00:00.123Z', 50554d6e-29bb-11e5-b345-feff819cdc9f, -128, "
        "00112233-4455-6677-8899-aabbccddeeff, 'Größe', 170141183460469231731687303715884105728) USING TIMESTAMP 1000",
        "INSERT INTO g.types (k, v) VALUES ('empty', '') USING TIMESTAMP 1000",
        "INSERT INTO g.collections (k1, k2, l, s, m, f, p, t, v) VALUES (1, 'a', [3, 1, 2], {'x', 'y'}, {'one': 1, 'two': 2}, "
        f"{{1: ['a', 'b'], 2: []}}, {_PLACE}, (1, 'one'), [1.0, 2.5, -3.0]) USING TIMESTAMP 1000",
        "UPDATE g.counts SET hits = hits + 5, misses = misses - 1 WHERE k = 1 AND c = 1",
        "UPDATE g.counts SET total = total + 10 WHERE k = 1",
        *(
            f"INSERT INTO g.removed (k, c, v, m) VALUES ({k}, {c}, 'v{c}', {{1: 1, 2: 2}}) USING TIMESTAMP 1000"
            for k in range(1, 6)
            for c in range(1, 6)
        ),
        "UPDATE g.removed USING TIMESTAMP 1000 SET s = 'static' WHERE k = 5",
        "INSERT INTO g.lives (k, v) VALUES (1, 'by the default of the table') USING TIMESTAMP 1000",
        "INSERT INTO g.lives (k, v, w) VALUES (2, 'expires', 'expires') USING TIMESTAMP 1000 AND TTL 1",
        "INSERT INTO g.lives (k, v) VALUES (3, 'for ever') USING TIMESTAMP 1000 AND TTL 0",
        "INSERT INTO g.accounts (owner, id, balance) VALUES ('ann', 1, 100) IF NOT EXISTS",
        "UPDATE g.accounts SET balance = 90 WHERE owner = 'ann' AND id = 1 IF balance = 100",
        "INSERT INTO g.altered (k, kept, dropped, again) VALUES (1, 'kept', 'dropped', 'before') USING TIMESTAMP 1000",
        "INSERT INTO g.gone (k) VALUES (1)",
        "INSERT INTO g.emptied (k) VALUES (1)",
    ],
    [
        "DROP TABLE g.gone",
        "TRUNCATE g.emptied",
        "INSERT INTO g.emptied (k) VALUES (2)",
        "ALTER TABLE g.altered DROP dropped",
        "ALTER TABLE g.altered DROP again",
        "ALTER TABLE g.altered ADD again text",
        "ALTER TABLE g.altered ADD added set<int>",
        _event("monday", 9, 1, "new", 2000),
        "DELETE v FROM g.removed USING TIMESTAMP 2000 WHERE k = 1 AND c = 1",
        "DELETE FROM g.removed USING TIMESTAMP 2000 WHERE k = 1 AND c = 2",
        "DELETE FROM g.removed USING TIMESTAMP 2000 WHERE k = 2 AND c > 1 AND c <= 4",
        "DELETE FROM g.removed USING TIMESTAMP 2000 WHERE k = 3",
        "UPDATE g.counts SET hits = hits + 2 WHERE k = 1 AND c = 1",
        "UPDATE g.accounts SET limit_ = 500 WHERE owner = 'ann' IF limit_ = null",
    ],
]

LOGGED = [
    _event("tuesday", 0, 4, "in the log", 3000, _PLACE),
    "UPDATE g.events USING TIMESTAMP 3000 SET kind = 'rest' WHERE day = 'tuesday'",
    "DELETE kind FROM g.events USING TIMESTAMP 3000 WHERE day = 'monday'",
    "UPDATE g.collections USING TIMESTAMP 3000 SET m['two'] = 22, m['three'] = 3, s = s - {'x'}, p.number = 8 "
    "WHERE k1 = 1 AND k2 = 'a'",
    "UPDATE g.collections SET l = l + [4], l[0] = 33 WHERE k1 = 1 AND k2 = 'a'",
    "UPDATE g.collections USING TIMESTAMP 3000 SET s = {'only a cell'} WHERE k1 = 2 AND k2 = 'b'",
    "UPDATE g.counts SET hits = hits + 100, misses = misses + 3 WHERE k = 1 AND c = 1",
    "UPDATE g.counts SET hits = hits + 1 WHERE k = 2 AND c = 1",
    "DELETE m[1] FROM g.removed USING TIMESTAMP 3000 WHERE k = 1 AND c = 3",
    "UPDATE g.removed USING TIMESTAMP 3000 SET m = {9: 9} WHERE k = 1 AND c = 4",
    "DELETE FROM g.removed USING TIMESTAMP 3000 WHERE k = 2 AND c >= 5",
    "DELETE FROM g.removed USING TIMESTAMP 3000 WHERE k = 4",
    "INSERT INTO g.removed (k, c, v) VALUES (4, 4, 'back') USING TIMESTAMP 4000",
    "DELETE s FROM g.removed USING TIMESTAMP 3000 WHERE k = 5",
    "INSERT INTO g.lives (k, v) VALUES (4, 'expires in the log') USING TIMESTAMP 3000 AND TTL 1",
    "UPDATE g.lives USING TIMESTAMP 3000 AND TTL 0 SET w = 'for ever' WHERE k = 3",
    "UPDATE g.accounts SET balance = 80 WHERE owner = 'ann' AND id = 1 IF balance = 90",
    "INSERT INTO g.accounts (owner, id, balance) VALUES ('bob', 1, 1) IF NOT EXISTS",
    "DELETE FROM g.accounts WHERE owner = 'bob' AND id = 1 IF balance = 1",
    "INSERT INTO g.accounts (owner, id, balance) VALUES ('bob', 2, 2) IF NOT EXISTS",
    "INSERT INTO g.altered (k, kept, again, added) VALUES (2, 'kept', 'after', {1, 2})",
]


def _read_event(day, hour, number, kind, note, micros, place=None):
    return {
        "day": day,
        "hour": hour,
        "id": _UUID.format(number),
        "kind": kind,
        "note": note,
        "place": place,
        "writetime(note)": micros,
    }


_READ_PLACE = {
    "street": "Elm",
    "number": 7,
    "tags": ["old", "red"],
    "marks": [{"name": "a", "weight": 1}, {"name": "b", "weight": None}],
}
_BOTH = {"1": 1, "2": 2}

EXPECTED = {
    "SELECT JSON day, hour, id, kind, note, place, writetime(note) FROM g.events WHERE day = 'monday'": [
        _read_event("monday", 9, 1, None, "new", 2000),
        _read_event("monday", 9, 2, None, "second", 1000),
        _read_event("monday", 8, 1, None, "early", 1000, _READ_PLACE),
    ],
    "SELECT JSON day, hour, id, kind, note, place, writetime(note) FROM g.events WHERE day = 'tuesday'": [
        _read_event("tuesday", 23, 3, "rest", "late", 1000),
        _read_event("tuesday", 0, 4, "rest", "in the log", 3000, _READ_PLACE),
    ],
    "SELECT JSON * FROM g.types WHERE k = 'all'": [
        {
            "k": "all",
            "a": "ascii",
            "b": "0x00ff",
            "bi": -9223372036854775808,
            "bo": True,
            "d": "2024-02-29",
            "de": -12.340,
            "dou": 0.1,
            "du": "1y2mo3d4h",
            "f": 0.5,
            "i": "2001:db8:0:0:0:0:0:1",
            "n": -2147483648,
            "s": -32768,
            "t": "23:59:59.123456789",
            "ti": -128,
            "ts": "2024-02-29 12:00:00.123Z",
            "tu": "50554d6e-29bb-11e5-b345-feff819cdc9f",
            "u": "00112233-4455-6677-8899-aabbccddeeff",
            "v": "Größe",
            "vi": 170141183460469231731687303715884105728,
        }
    ],
    "SELECT JSON k, a, n, v FROM g.types WHERE k = 'empty'": [{"k": "empty", "a": None, "n": None, "v": ""}],
    "SELECT JSON * FROM g.collections WHERE k1 = 1 AND k2 = 'a'": [
        {
            "k1": 1,
            "k2": "a",
            "f": {"1": ["a", "b"], "2": []},
            "l": [33, 1, 2, 4],
            "m": {"one": 1, "three": 3, "two": 22},
            "p": {**_READ_PLACE, "number": 8},
            "s": ["y"],
            "t": [1, "one"],
            "v": [1.0, 2.5, -3.0],
        }
    ],
    "SELECT JSON k1, k2, l, s FROM g.collections WHERE k1 = 2 AND k2 = 'b'": [
        {"k1": 2, "k2": "b", "l": None, "s": ["only a cell"]}
    ],
    "SELECT JSON * FROM g.counts WHERE k = 1": [{"k": 1, "c": 1, "total": 10, "hits": 107, "misses": 2}],
    "SELECT JSON * FROM g.counts WHERE k = 2": [{"k": 2, "c": 1, "total": None, "hits": 1, "misses": None}],
    "SELECT JSON c, v, m FROM g.removed WHERE k = 1": [
        {"c": 1, "v": None, "m": _BOTH},
        {"c": 3, "v": "v3", "m": {"2": 2}},
        {"c": 4, "v": "v4", "m": {"9": 9}},
        {"c": 5, "v": "v5", "m": _BOTH},
    ],
    "SELECT JSON c, v, m FROM g.removed WHERE k = 2": [{"c": 1, "v": "v1", "m": _BOTH}],
    "SELECT JSON c, v, m FROM g.removed WHERE k = 3": [],
    "SELECT JSON c, v, m FROM g.removed WHERE k = 4": [{"c": 4, "v": "back", "m": None}],
    "SELECT JSON c, s FROM g.removed WHERE k = 5": [{"c": c, "s": None} for c in range(1, 6)],
    # What had a second to live is gone.
    "SELECT JSON k, v, w FROM g.lives WHERE k IN (1, 2, 3, 4)": [
        {"k": 1, "v": "by the default of the table", "w": None},
        {"k": 3, "v": "for ever", "w": "for ever"},
    ],
    "SELECT JSON ttl(v), ttl(w), writetime(w) FROM g.lives WHERE k = 3": [{"ttl(v)": None, "ttl(w)": None, "writetime(w)": 3000}],
    "SELECT JSON * FROM g.accounts WHERE owner = 'ann'": [{"owner": "ann", "id": 1, "limit_": 500, "balance": 80}],
    "SELECT JSON * FROM g.accounts WHERE owner = 'bob'": [{"owner": "bob", "id": 2, "limit_": None, "balance": 2}],
    "SELECT JSON * FROM g.altered WHERE k IN (1, 2)": [
        {"k": 1, "added": None, "again": None, "kept": "kept"},
        {"k": 2, "added": [1, 2], "again": "after", "kept": "kept"},
    ],
    "SELECT JSON * FROM g.emptied": [{"k": 2}],
}

# What the schema is: types with their places, names and types of what is gone, and options that differ from the defaults.
COLUMNS = {
    "accounts": {
        "balance": "int regular",
        "id": "int clustering 0 asc",
        "limit_": "int static",
        "owner": "text partition_key 0",
    },
    "altered": {"added": "set<int> regular", "again": "text regular", "k": "int partition_key 0", "kept": "text regular"},
    "collections": {
        "f": "frozen<map<int, frozen<list<text>>>> regular",
        "k1": "int partition_key 0",
        "k2": "text partition_key 1",
        "l": "list<int> regular",
        "m": "map<text, int> regular",
        "p": "place regular",
        "s": "set<text> regular",
        "t": "frozen<tuple<int, text>> regular",
        "v": "vector<float, 3> regular",
    },
    "counts": {
        "c": "int clustering 0 asc",
        "hits": "counter regular",
        "k": "int partition_key 0",
        "misses": "counter regular",
        "total": "counter static",
    },
    "emptied": {"k": "int partition_key 0"},
    "events": {
        "day": "text partition_key 0",
        "hour": "int clustering 0 desc",
        "id": "uuid clustering 1 asc",
        "kind": "text static",
        "note": "text regular",
        "place": "frozen<place> regular",
    },
    "lives": {"k": "int partition_key 0", "v": "text regular", "w": "text regular"},
    "pairs": {"number": "int partition_key 1", "side": "text partition_key 0", "v": "int regular"},
    "removed": {
        "c": "int clustering 0 asc",
        "k": "int partition_key 0",
        "m": "map<int, int> regular",
        "s": "text static",
        "v": "text regular",
    },
    "types": {
        "a": "ascii regular",
        "b": "blob regular",
        "bi": "bigint regular",
        "bo": "boolean regular",
        "d": "date regular",
        "de": "decimal regular",
        "dou": "double regular",
        "du": "duration regular",
        "f": "float regular",
        "i": "inet regular",
        "k": "text partition_key 0",
        "n": "int regular",
        "s": "smallint regular",
        "t": "time regular",
        "ti": "tinyint regular",
        "ts": "timestamp regular",
        "tu": "timeuuid regular",
        "u": "uuid regular",
        "v": "text regular",
        "vi": "varint regular",
    },
}
DROPPED = {"altered.again": "text regular", "altered.dropped": "text regular"}
TYPES = {
    "mark": {"name": "text", "weight": "int"},
    "place": {"street": "text", "number": "int", "tags": "frozen<set<text>>", "marks": "frozen<list<frozen<mark>>>"},
}
_COMPACTION = "org.apache.cassandra.db.compaction."
OPTIONS = {
    "events": {"comment": "it's", "gc_grace_seconds": 864000},
    "types": {"compression": {"enabled": "false"}},
    "collections": {
        "bloom_filter_fp_chance": 0.1,
        "compaction": {"class": f"{_COMPACTION}LeveledCompactionStrategy"},
        "compression": {"chunk_length_in_kb": "16", "class": "org.apache.cassandra.io.compress.ZstdCompressor"},
    },
    "lives": {
        "default_time_to_live": 600000000,
        "compaction": {
            "class": f"{_COMPACTION}TimeWindowCompactionStrategy",
            "compaction_window_size": "1",
            "max_threshold": "32",
            "min_threshold": "4",
        },
    },
    "removed": {"gc_grace_seconds": 1000000000},
}

# Besides, logged batches were under way when the node was killed: of each, both rows are there or none; of those that were
# acknowledged (the facts beside the archive name them), both.
BATCH = (
    "BEGIN BATCH INSERT INTO {keyspace}.pairs (side, number, v) VALUES ('left', {number}, {number}); "
    "INSERT INTO {keyspace}.pairs (side, number, v) VALUES ('right', {number}, {number}); APPLY BATCH"
)
PAIRS = "SELECT side, number, v FROM {keyspace}.pairs"

# Three members; the third was killed between BEFORE and MISSED.
THREE_NODES_SCHEMA = [
    "CREATE KEYSPACE c WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
    f"CREATE TABLE c.items (id int PRIMARY KEY, value text) WITH {FOR_EVER}",
    f"CREATE TABLE c.counts (id int PRIMARY KEY, hits counter) WITH {FOR_EVER}",
    f"CREATE TABLE c.accounts (id int PRIMARY KEY, balance int) WITH {FOR_EVER}",
    f"CREATE TABLE c.pairs (side text, number int, v int, PRIMARY KEY ((side, number))) WITH {FOR_EVER}",
]
BEFORE = [
    *(f"INSERT INTO c.items (id, value) VALUES ({number}, 'before {number}') USING TIMESTAMP 1000" for number in range(20)),
    "UPDATE c.counts SET hits = hits + 5 WHERE id = 1",
    "INSERT INTO c.accounts (id, balance) VALUES (1, 100) IF NOT EXISTS",
    "INSERT INTO c.accounts (id, balance) VALUES (2, 100) IF NOT EXISTS",
]
MISSED = [
    *(f"INSERT INTO c.items (id, value) VALUES ({number}, 'missed {number}') USING TIMESTAMP 2000" for number in range(10, 30)),
    "DELETE FROM c.items USING TIMESTAMP 2000 WHERE id = 0",
    "UPDATE c.counts SET hits = hits + 2 WHERE id = 1",
    "UPDATE c.accounts SET balance = 90 WHERE id = 1 IF balance = 100",
]
THREE_NODES_COLUMNS = {
    "accounts.balance": "int",
    "accounts.id": "int",
    "counts.hits": "counter",
    "counts.id": "int",
    "items.id": "int",
    "items.value": "text",
    "pairs.number": "int",
    "pairs.side": "text",
    "pairs.v": "int",
}
# Of every member, as soon as it has been given its hints. Transactions are read at SERIAL.
MEMBER_EXPECTED = {
    "SELECT id, value FROM c.items": {
        **{number: f"before {number}" for number in range(1, 10)},
        **{number: f"missed {number}" for number in range(10, 30)},
    },
    "SELECT id, hits FROM c.counts": {1: 7},
}
SERIAL_EXPECTED = {
    "SELECT id, balance FROM c.accounts WHERE id = 1": {1: 90},
    "SELECT id, balance FROM c.accounts WHERE id = 2": {2: 100},
}
# What the third member has without its hints.
THIRD_EXPECTED = {"SELECT id, value FROM c.items": {number: f"before {number}" for number in range(20)}}
