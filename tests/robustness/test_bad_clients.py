"""Ten thousand bad frames and statements, and clients that do not behave.

Each is answered with an ERROR or ends its connection; after each group another client is served as before, the
process lives, and its memory has not grown by more than `GROWTH_MIB`. Everything comes from one seed.
"""

import functools
import random
import socket
import struct
import threading
import time

import cramjam
import lz4.block
import pytest
import wire
from conftest import driver_session, new_node
from wire import BATCH, ERROR, EXECUTE, OPTIONS, PREPARE, QUERY, REGISTER, RESULT, STARTUP, Client, frame

SEED = 20260
MIB = 1 << 20
# Above what the node holds when it is idle: its allocator's slack, memtables, and one frame of the largest size.
GROWTH_MIB = 400
MAX_FRAME_BYTES = 32 * MIB
CREATE = [
    "CREATE TABLE IF NOT EXISTS plain (k int PRIMARY KEY, v text)",
    "CREATE TYPE IF NOT EXISTS place (street text, number int)",
    """CREATE TABLE IF NOT EXISTS typed (k int, c int, a bigint, u uuid, t timeuuid, b boolean, d double, i inet,
       n varint, e decimal, l list<int>, s set<text>, m map<int, text>, p tuple<int, text>, f frozen<place>,
       x vector<float, 3>, y date, z time, w duration, PRIMARY KEY (k, c))""",
]


@pytest.fixture(scope="module")
def node():
    settings = {"max_frame_bytes": MAX_FRAME_BYTES, "max_requests_per_connection": 64}
    with new_node(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node) as connected:
        for statement in CREATE:
            connected.execute(statement)
        connected.execute("INSERT INTO plain (k, v) VALUES (1, 'one')")
        yield connected


@pytest.fixture(scope="module")
def idle_mib(node, session):
    """Resident memory before anything bad was sent."""
    return node.resident_mib()


@pytest.fixture(autouse=True)
def the_node_is_well(node, session, idle_mib, measured, request):
    """After each test: the process lives, serves the driver, and has not grown."""
    yield
    assert node.process.poll() is None, node.log_tail()
    row = session.execute("SELECT v FROM plain WHERE k = 1").one()
    assert row.v == "one"
    growth = node.resident_mib() - idle_mib
    measured(f"{request.node.name}: resident memory {growth:+.0f} MiB")
    assert growth < GROWTH_MIB
    assert "panicked" not in node.log_tail(1000), node.log_tail()


def address(node):
    return node.host, node.port


def must_be_refused(client, data):
    """Sends bytes that hold nothing good, and no more: only errors come back, then the end."""
    client.send(data)
    answers = client.finish()
    assert all(answer.opcode in (ERROR, wire.SUPPORTED) for answer in answers), (data[:200], answers)


def keyspaced(node, version=4):
    client = Client(address(node), version)
    answer = client.ask(QUERY, wire.query("USE k"))
    assert answer.opcode == RESULT, answer
    return client


def must_be_answered(node, requests, allowed, per_flight=64):
    """Sends requests with whole frames, many at a time: each gets one answer, or ends the connection."""
    client = keyspaced(node)
    counted = {opcode: 0 for opcode in (*allowed, None)}
    for begin in range(0, len(requests), per_flight):
        flight = requests[begin : begin + per_flight]
        client.send(b"".join(frame(opcode, body, stream=stream) for stream, (opcode, body) in enumerate(flight)))
        waiting = set(range(len(flight)))
        while waiting:
            answer = client.answer()
            if answer is None:
                counted[None] += len(waiting)
                client = keyspaced(node)
                break
            if answer.opcode == wire.EVENT:
                continue
            waiting.remove(answer.stream)
            assert answer.opcode in allowed, (flight[answer.stream], answer)
            counted[answer.opcode] += 1
    client.socket.close()
    return counted


def mutated(source, data):
    """`data` with some bytes changed, removed, doubled or put in."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        at = source.randrange(len(out)) if out else 0
        match source.randrange(6):
            case 0 if out:
                out[at] = source.randrange(256)
            case 1 if out:
                out[at] ^= 1 << source.randrange(8)
            case 2:
                del out[at : at + source.randrange(1, 9)]
            case 3:
                out[at:at] = source.randbytes(source.randrange(1, 9))
            case 4:
                out[at : at + 4] = struct.pack(">i", source.choice((-1, -2, 0, 0x7FFFFFFF, -0x80000000, 65536)))
            case 5:
                out[at:at] = out[at : at + source.randrange(1, 64)]
    return bytes(out)


def test_1500_times_random_bytes(node):
    source = random.Random(SEED)
    for number in range(1500):
        data = source.randbytes(source.choice((1, 8, 9, 10, 64, 1000)))
        if number % 3 == 0:
            # A header that is right, of a random body.
            body = source.randbytes(source.randrange(200))
            data = frame(source.choice((STARTUP, QUERY, PREPARE, EXECUTE, BATCH)), body)
        with Client(address(node), started=number % 2 == 0) as client:
            must_be_refused(client, data)


def test_1000_truncated_frames(node):
    source = random.Random(SEED + 1)
    whole = [
        frame(QUERY, wire.query("SELECT * FROM k.plain WHERE k = ?", values=[struct.pack(">i", 1)])),
        frame(PREPARE, wire.long_string("SELECT * FROM k.plain WHERE k = ?")),
        frame(BATCH, wire.batch(["INSERT INTO k.plain (k) VALUES (5)"] * 5)),
        frame(STARTUP, wire.startup()),
    ]
    for number in range(1000):
        data = source.choice(whole)
        with Client(address(node), started=number % 2 == 0) as client:
            must_be_refused(client, data[: source.randrange(len(data))])


def test_200_bodies_declared_longer_than_allowed(node):
    lengths = (MAX_FRAME_BYTES + 1, 256 * MIB, 256 * MIB + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    source = random.Random(SEED + 2)
    kept = []
    for number in range(200):
        client = Client(address(node), started=number % 2 == 0)
        client.send(frame(source.choice(wire.OPCODES), b"x" * 100, length=lengths[number % len(lengths)]))
        answer = client.answer()
        assert answer is None or answer.opcode == ERROR, answer
        kept.append(client)
    for client in kept:
        client.socket.close()


def test_32_frames_of_the_largest_size_never_finished(node):
    """What is kept for a frame that arrives slowly is what has arrived."""
    kept = [Client(address(node)) for _ in range(32)]
    for client in kept:
        client.send(frame(QUERY, b"x" * MIB, length=MAX_FRAME_BYTES))
    for client in kept:
        client.socket.close()


def test_16_clients_that_stay_after_a_large_frame(node, idle_mib):
    """A connection gives the memory of a large frame back when it is done."""
    kept = [Client(address(node)) for _ in range(16)]
    large = wire.query(b"x" * (MAX_FRAME_BYTES - 100))
    for client in kept:
        assert client.ask(QUERY, large).opcode == ERROR
    growth = node.resident_mib() - idle_mib
    for client in kept:
        client.socket.close()
    assert growth < GROWTH_MIB


def test_600_wrong_versions_directions_and_opcodes(node):
    source = random.Random(SEED + 3)
    for number in range(600):
        version, opcode = 4, source.choice((QUERY, OPTIONS, STARTUP))
        match number % 3:
            case 0:
                version = source.choice([v for v in range(256) if v not in (3, 4, 5)])
            case 1:
                version = source.choice((0x83, 0x84, 0x85))
            case 2:
                opcode = source.choice([code for code in range(256) if code not in wire.OPCODES])
        with Client(address(node), started=number % 2 == 0) as client:
            client.send(frame(opcode, wire.query("SELECT * FROM k.plain"), version))
            answer = client.answer()
            assert answer is not None and answer.opcode == ERROR, (version, opcode, answer)
            assert answer.error_code == wire.PROTOCOL_ERROR


@pytest.mark.parametrize("version", [3, 4, 5])
def test_every_opcode_before_startup(node, version):
    for opcode in wire.OPCODES:
        for body in (b"", wire.startup(), wire.query("SELECT * FROM k.plain")):
            if opcode == OPTIONS or (opcode == STARTUP and body == wire.startup()):
                continue
            with Client(address(node), version, started=False) as client:
                answer = client.ask(opcode, body)
                assert answer is None or answer.opcode == ERROR, (opcode, answer)


def test_startup_twice_is_a_protocol_error_and_the_connection_goes_on(node):
    with Client(address(node)) as client:
        assert client.ask(STARTUP, wire.startup()).error_code == wire.PROTOCOL_ERROR
        assert client.ask(OPTIONS).opcode == wire.SUPPORTED


def test_600_damaged_segments(node):
    source = random.Random(SEED + 4)
    request = frame(QUERY, wire.query("SELECT * FROM k.plain")[:-1] + struct.pack(">I", 0), version=5)
    for number in range(600):
        options = {"COMPRESSION": "lz4"} if number % 2 else {}
        whole = wire.segment(request, uncompressed_bytes=0 if number % 2 else None)
        damaged = bytearray(whole)
        damaged[source.randrange(len(whole))] ^= 1 << source.randrange(8)
        with Client(address(node), 5, **options) as client:
            client.send(bytes(damaged))
            client.socket.shutdown(socket.SHUT_WR)
            while client.receive():
                pass
            # Nothing in a damaged segment is carried out: what may come back is an error, in a segment.
            assert len(client.received) < 1000 and b"one" not in client.received, bytes(client.received)


def test_segments_of_wrong_shape(node):
    request = frame(OPTIONS, version=5)
    wrong = [
        wire.segment(b""),
        wire.segment(request[:-1]),
        wire.segment(request + request[:5]),
        wire.segment(frame(QUERY, b"x" * 100, version=5, length=MAX_FRAME_BYTES), self_contained=False)
        + wire.segment(request),
        wire.segment(frame(QUERY, b"x" * 100, version=5, length=0xFFFFFFFF), self_contained=False),
        wire.segment(frame(QUERY, b"x" * 100, version=5, length=10), self_contained=False),
        wire.segment(wire.segment(request)),
    ]
    for data in wrong:
        with Client(address(node), 5) as client:
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            while client.receive():
                pass
            assert len(client.received) < 1000


@functools.cache
def bomb(algorithm):
    """A body four times as large as a frame may be."""
    plain = b"\0" * (4 * MAX_FRAME_BYTES)
    if algorithm == "lz4":
        return struct.pack(">I", len(plain)) + lz4.block.compress(plain, store_size=False)
    return bytes(cramjam.snappy.compress_raw(plain))


def compressed_body(source, number):
    """(algorithm, body): bombs, wrong lengths, damage."""
    algorithm = ("lz4", "snappy")[number % 2]
    if number % 20 < 2:
        return algorithm, bomb(algorithm)
    plain = wire.query("SELECT * FROM k.plain WHERE v = '" + "x" * source.randrange(5000) + "'")
    if algorithm == "lz4":
        length = len(plain)
        if number % 20 in (2, 4):
            length = source.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 256 * MIB, MAX_FRAME_BYTES, length + 1))
        body = struct.pack(">I", length) + lz4.block.compress(plain, store_size=False)
    else:
        body = bytes(cramjam.snappy.compress_raw(plain))
        if number % 20 in (3, 5):
            body = source.choice((b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x10", b"\x00", b"")) + body[4:]
    if number % 20 >= 6:
        body = mutated(source, body)
    return algorithm, body


def test_400_compression_bombs_and_damaged_compressed_bodies(node):
    source = random.Random(SEED + 5)
    kept = []
    for number in range(400):
        algorithm, body = compressed_body(source, number)
        client = Client(address(node), COMPRESSION=algorithm)
        client.send(frame(QUERY, body, flags=wire.COMPRESSED))
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.answer()
        assert answer is None or answer.opcode == ERROR, answer
        kept.append(client)
        if len(kept) == 50:
            for done in kept:
                done.socket.close()
            kept.clear()


def test_lz4_segments_that_announce_too_much(node):
    block = lz4.block.compress(b"\0" * 131071, store_size=False)
    for data in (
        wire.segment(block, uncompressed_bytes=131071),
        wire.segment(block, uncompressed_bytes=100),
        wire.segment(b"\xff" * 100, uncompressed_bytes=131071),
        wire.segment(block, uncompressed_bytes=131071, self_contained=False) * 3,
    ):
        with Client(address(node), 5, COMPRESSION="lz4") as client:
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            while client.receive():
                pass
            assert len(client.received) < 1000


def test_4000_mutated_requests(node):
    source = random.Random(SEED + 6)
    with Client(address(node)) as client:
        answer = client.ask(PREPARE, wire.long_string("SELECT * FROM k.plain WHERE k = ?"))
        read_id = answer.prepared_id
        answer = client.ask(PREPARE, wire.long_string("INSERT INTO k.typed (k, c, l, m) VALUES (?, ?, ?, ?)"))
        write_id = answer.prepared_id
    number = struct.pack(">i", 7)
    values = [number, number, struct.pack(">ii", 1, 4) + number, struct.pack(">ii", 1, 4) + number + b"\0\0\0\1x"]
    whole = [
        (QUERY, wire.query("SELECT v, writetime(v) FROM plain WHERE k IN (1, 2, 3) LIMIT 10", page_size=2)),
        (QUERY, wire.query("INSERT INTO plain (k, v) VALUES (?, ?) USING TTL 100", values=[number, b"seven"])),
        (QUERY, wire.query("UPDATE typed SET m = m + {1: 'a'}, l = [1, 2] + l WHERE k = 7 AND c = 7")),
        (QUERY, wire.query("SELECT json * FROM typed WHERE token(k) > -5 AND c > 3 ALLOW FILTERING")),
        (PREPARE, wire.long_string("SELECT k, CAST(v AS text), count(*) FROM plain GROUP BY k")),
        (EXECUTE, wire.execute(read_id, values=[number], page_size=5)),
        (EXECUTE, wire.execute(write_id, values=values)),
        (BATCH, wire.batch(["INSERT INTO plain (k, v) VALUES (9, 'x')", "DELETE FROM plain WHERE k = 9"])),
        (REGISTER, struct.pack(">H", 1) + wire.string("TOPOLOGY_CHANGE")),
    ]
    requests = []
    for _ in range(4000):
        opcode, body = source.choice(whole)
        requests.append((opcode, mutated(source, body)))
    counted = must_be_answered(node, requests, (ERROR, RESULT, wire.READY))
    assert counted[ERROR] > 2000, counted
    assert counted[None] == 0, "the frames were whole: no reason to close a connection"


def test_1000_wrong_bind_values(node):
    source = random.Random(SEED + 7)
    # Column, and lengths or bytes that are no value of its type.
    wrong = {
        "k": [b"1", b"12345", None],
        "a": [b"1234567", b"123456789"],
        "u": [b"1" * 15, b"1" * 17],
        "t": [b"1" * 15, bytes(16)],
        "b": [b"12"],
        "d": [b"1234567"],
        "i": [b"1", b"12345", b"1" * 17],
        "e": [b"123"],
        "l": [b"1", struct.pack(">i", 0x7FFFFFFF), struct.pack(">ii", 1, 3) + b"abc", struct.pack(">ii", 5, 4)],
        "s": [struct.pack(">ii", 1, 2) + b"\xff\xfe", struct.pack(">ii", 2, 200)],
        "m": [struct.pack(">ii", 1, 4) + b"abcd", struct.pack(">i", 1 << 30) + b"x" * 100],
        "p": [struct.pack(">i", 100) + b"x", struct.pack(">i", 3) + b"abc"],
        "f": [struct.pack(">i", 100) + b"x", struct.pack(">i", 2) + b"\xff\xff"],
        "x": [b"1" * 11, b"1" * 13],
        "y": [b"123"],
        "z": [b"1234567"],
        "w": [b"1"],
    }
    key = struct.pack(">i", 1)
    requests = []
    with keyspaced(node) as client:
        for column in wrong:
            names = ["k", "c"] + ([column] if column != "k" else [])
            text = f"INSERT INTO typed ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            answer = client.ask(PREPARE, wire.long_string(text))
            assert answer.opcode == RESULT, answer
            for data in wrong[column]:
                values = [data, key] if column == "k" else [key, key, data]
                requests.append((EXECUTE, wire.execute(answer.prepared_id, values=values)))
            good = [key] * len(names)
            for values in (good[:-1], [*good, key], []):
                requests.append((EXECUTE, wire.execute(answer.prepared_id, values=values)))
            requests.append((EXECUTE, wire.execute(answer.prepared_id[:-1], values=good)))
    source.shuffle(requests)
    requests = (requests * (1000 // len(requests) + 1))[:1000]
    must_be_answered(node, requests, (ERROR,))


def test_1000_statements_of_random_words(node):
    source = random.Random(SEED + 8)
    words = """SELECT INSERT UPDATE DELETE FROM WHERE INTO VALUES SET USING TTL TIMESTAMP AND IN CONTAINS KEY TOKEN
        CREATE TABLE TYPE KEYSPACE INDEX FUNCTION AGGREGATE ALTER DROP WITH PRIMARY BATCH BEGIN APPLY IF NOT EXISTS
        ORDER BY GROUP LIMIT PER PARTITION ALLOW FILTERING JSON DISTINCT CAST AS count writetime * ( ) [ ] { } , ; : . =
        < > <= >= != + - / % ? :a 'text' \"Name\" $$ $$ 1 -1 1e400 0x 0xff 12h3m P1Y NaN Infinity null true plain typed
        k c v l m frozen<list<int>> 550e8400-e29b-41d4-a716-446655440000 -- /* */ é \0""".split()
    requests = []
    for _ in range(1000):
        text = " ".join(source.choice(words) for _ in range(source.randrange(1, 30)))
        if source.random() < 0.5:
            text = f"SELECT * FROM nowhere WHERE {text}"
        requests.append((source.choice((QUERY, PREPARE)), wire.query(text)))
    must_be_answered(node, requests, (ERROR, RESULT))


DEPTH = 20_000
DEEP = {
    "parentheses": "SELECT * FROM plain WHERE k = " + "(" * DEPTH + "1" + ")" * DEPTH,
    "lists": "INSERT INTO typed (k, c, l) VALUES (1, 1, " + "[" * DEPTH + "]" * DEPTH + ")",
    "maps": "INSERT INTO typed (k, c, m) VALUES (1, 1, " + "{1:" * DEPTH + "1" + "}" * DEPTH + ")",
    "calls": "SELECT " + "max(" * DEPTH + "k" + ")" * DEPTH + " FROM plain",
    "casts": "SELECT " + "CAST(" * DEPTH + "k" + " AS text)" * DEPTH + " FROM plain",
    "type hints": "INSERT INTO plain (k) VALUES (" + "(int)" * DEPTH + "1)",
    "minus signs": "SELECT * FROM plain WHERE k = " + "- " * DEPTH + "1",
    "sums": "SELECT k" + " + k" * DEPTH + " FROM plain",
    "types": "CREATE TABLE deep (k int PRIMARY KEY, v " + "frozen<list<" * DEPTH + "int" + ">>" * DEPTH + ")",
    "tuples": "CREATE TABLE deep (k int PRIMARY KEY, v " + "tuple<" * DEPTH + "int" + ">" * DEPTH + ")",
    "field access": "SELECT f" + ".street" * DEPTH + " FROM typed",
    "indexes": "SELECT l" + "[0]" * DEPTH + " FROM typed",
    "batches": "BEGIN BATCH " * DEPTH,
    "comments": "/*" * DEPTH,
    "quotes": "SELECT '" + "''" * DEPTH,
    "dollars": "SELECT $$" + "$" * DEPTH,
    "json": "INSERT INTO typed JSON '" + '{"k":1,"c":1,"l":' + "[" * DEPTH + "]" * DEPTH + "}'",
    "json objects": "INSERT INTO typed JSON '" + '{"m":' * DEPTH + "}" * DEPTH + "'",
}


@pytest.mark.parametrize("what", DEEP)
def test_deep_nesting(node, what):
    with keyspaced(node) as client:
        # JSON is read when it is carried out.
        assert client.ask(PREPARE, wire.query(DEEP[what])).opcode in ((ERROR, RESULT) if "json" in what else (ERROR,))
        answer = client.ask(QUERY, wire.query(DEEP[what]))
        assert answer is not None and answer.opcode == ERROR, answer


LONG = {
    "a name": "SELECT " + "x" * MIB + " FROM plain",
    "a number": "SELECT * FROM plain WHERE k = " + "9" * MIB,
    "a decimal": "INSERT INTO typed (k, c, e) VALUES (1, 1, 1e999999999999)",
    "a blob": "INSERT INTO plain (k, v) VALUES (1, 0x" + "ab" * (MIB // 2) + ")",
    "wrong words": "SELECT " * (MIB // 7),
    "columns": "SELECT " + "z, " * (MIB // 3) + "z FROM plain",
    "definitions": "CREATE TABLE wide (k int PRIMARY KEY, " + "v int, " * (MIB // 7) + "w int)",
    "a partition key": "SELECT * FROM system_schema.tables WHERE keyspace_name = '" + "x" * MIB + "'",
    "spaces": " " * MIB,
    "statements": "SELECT * FROM plain; " * (MIB // 21),
    "not text": b"\xff" * MIB,
    "null bytes": b"\0" * MIB,
}


@pytest.mark.parametrize("what", LONG)
def test_statements_of_a_mebibyte(node, what):
    with keyspaced(node) as client:
        answer = client.ask(QUERY, wire.query(LONG[what]))
        assert answer is not None and answer.opcode == ERROR, answer


def test_a_million_elements_in_a_statement_are_an_answer_or_an_error(node):
    numbers = ", ".join(map(str, range(100_000)))
    with keyspaced(node) as client:
        for text in (
            f"SELECT * FROM plain WHERE k IN ({numbers})",
            f"INSERT INTO typed (k, c, l) VALUES (3, 3, [{numbers}])",
            f"INSERT INTO plain (k, v) VALUES (3, '{'x' * MIB}')",
            f"INSERT INTO typed (k, c, e) VALUES (3, 3, {'1' * 1000}e2147483647)",
            "SELECT e + 1, e * e, CAST(e AS text), CAST(e AS varint), sum(e) FROM typed WHERE k = 3",
            f"DELETE FROM typed WHERE k IN ({numbers}) AND c IN ({numbers})",
            "SELECT * FROM typed WHERE k IN (" + ", ".join("?" * 65_535) + ")",
        ):
            answer = client.ask(QUERY, wire.query(text))
            assert answer is not None and answer.opcode in (ERROR, RESULT), answer
        elements = b"".join(struct.pack(">ii", 4, number) for number in range(2, 65_537))
        many = struct.pack(">i", 65_535) + elements
        for text, values in (
            ("DELETE FROM plain WHERE k IN ?", (many,)),
            ("UPDATE plain SET v = ? WHERE k IN ?", (b"x", many)),
        ):
            answer = client.ask(QUERY, wire.query(text, values=values))
            assert answer is not None and answer.opcode == RESULT, answer


def test_large_and_wrong_batches(node):
    one = b"\0" + wire.long_string("INSERT INTO plain (k) VALUES (7)") + b"\0\0"
    end = struct.pack(">HB", wire.ONE, 0)
    bodies = [
        struct.pack(">BH", 0, 65_535) + one + end,
        struct.pack(">BH", 0, 0xFFFF) + b"\0" * 1000,
        struct.pack(">BH", 9, 1) + one + end,
        struct.pack(">BH", 0, 1) + b"\2" + one[1:] + end,
        struct.pack(">BH", 0, 1) + b"\1\0\x10" + b"x" * 16 + b"\0\0" + end,
        struct.pack(">BH", 2, 1) + one + end,
        struct.pack(">BH", 0, 1) + b"\0" + wire.long_string("SELECT * FROM plain") + b"\0\0" + end,
        struct.pack(">BH", 0, 1) + b"\0" + wire.long_string("TRUNCATE plain") + b"\0\0" + end,
    ]
    must_be_answered(node, [(BATCH, body) for body in bodies], (ERROR,))
    huge = wire.batch(["INSERT INTO plain (k, v) VALUES (7, 'x')"] * 65_535)
    must_be_answered(node, [(BATCH, huge)], (ERROR, RESULT))


def test_a_client_that_never_reads(node, session, idle_mib):
    """Requests for large answers, sent as long as the node takes them, and no answer read."""
    wide = "w" * 10_000
    session.execute("CREATE TABLE wide (k int, c int, v text, PRIMARY KEY (k, c))")
    write = session.prepare("INSERT INTO wide (k, c, v) VALUES (?, ?, ?)")
    for future in [session.execute_async(write, (1, number, wide)) for number in range(100)]:
        future.result()
    # An answer has a mebibyte, a request 70 bytes. Allowed are 16 MiB that wait for the client and
    # `max_requests_per_connection` answers more; without a bound these would be gigabytes.
    request = frame(QUERY, wire.query("SELECT * FROM k.wide WHERE k = 1"))
    clients = [keyspaced(node) for _ in range(2)]
    stop = threading.Event()

    def send(client):
        client.socket.settimeout(0.2)
        while not stop.is_set():
            try:
                client.socket.send(request * 1000)
            except OSError:
                pass

    senders = [threading.Thread(target=send, args=(client,)) for client in clients]
    for sender in senders:
        sender.start()
    try:
        most = 0
        for _ in range(200):
            assert session.execute("SELECT v FROM plain WHERE k = 1").one().v == "one"
            most = max(most, node.resident_mib() - idle_mib)
    finally:
        stop.set()
        for sender in senders:
            sender.join()
        for client in clients:
            client.socket.close()
    assert most < GROWTH_MIB


def test_500_idle_connections_and_50_slow_ones(node, session):
    idle = [Client(address(node), started=number % 2 == 0) for number in range(500)]
    slow = [Client(address(node)) for _ in range(50)]
    request = frame(QUERY, wire.query("SELECT v FROM k.plain WHERE k = 1"))
    for index in range(len(request)):
        for client in slow:
            client.send(request[index : index + 1])
        assert session.execute("SELECT v FROM plain WHERE k = 1").one().v == "one"
    for client in slow:
        answer = client.answer()
        assert answer.opcode == RESULT and b"one" in answer.body
    for client in idle + slow:
        client.socket.close()


def test_connections_that_are_gone_are_not_counted(node):
    """After all of the above only the driver's connections are open."""
    deadline = time.monotonic() + wire.TIMEOUT_SECONDS
    while (open_now := node.metric("helenus_connections")) > 8 and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert open_now <= 8
