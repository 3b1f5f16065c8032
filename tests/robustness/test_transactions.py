"""`BEGIN TRANSACTION` as clients use it: prepared, by many at once, refused, and with permissions."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.protocol import SyntaxException
from cassandra.query import SimpleStatement
from conftest import driver_session, new_node
from test_administration import command

CLIENTS = 8
INCREMENTS = 100


@pytest.fixture(scope="module")
def accounts(session):
    """A table of accounts by owner."""
    session.execute(
        "CREATE TABLE accounts (owner int, name text, total int STATIC, amount int, tags map<text, int>,"
        " PRIMARY KEY (owner, name))"
    )
    return session


def test_concurrent_increments_lose_nothing(session):
    session.execute("CREATE TABLE counts (k int PRIMARY KEY, n int, last text)")
    session.execute("INSERT INTO counts (k, n) VALUES (1, 0)")
    increment = session.prepare(
        "BEGIN TRANSACTION"
        " LET row = (SELECT n FROM counts WHERE k = ?);"
        " SELECT row.n;"
        " UPDATE counts SET n += ?, last = ? WHERE k = ?;"
        " COMMIT TRANSACTION"
    )
    assert [(it.name, it.type.typename) for it in increment.column_metadata] == [
        ("k", "int"),
        ("n", "int"),
        ("last", "varchar"),
        ("k", "int"),
    ]
    assert increment.routing_key_indexes == [0]

    def work(client):
        return [session.execute(increment, (1, 1, f"client {client}", 1)).one()[0] for _ in range(INCREMENTS)]

    with ThreadPoolExecutor(CLIENTS) as pool:
        seen = [n for before in pool.map(work, range(CLIENTS)) for n in before]
    # Each has seen a value of its own: the one from before its increment.
    assert sorted(seen) == list(range(CLIENTS * INCREMENTS))
    assert session.execute("SELECT n FROM counts WHERE k = 1").one().n == CLIENTS * INCREMENTS


def test_money_is_moved_once_or_not_at_all(accounts):
    for name, amount in [("a", 100), ("b", 0)]:
        accounts.execute("INSERT INTO accounts (owner, name, amount) VALUES (1, %s, %s)", (name, amount))
    move = accounts.prepare(
        "BEGIN TRANSACTION"
        " LET source = (SELECT amount FROM accounts WHERE owner = :owner AND name = :source);"
        " LET target = (SELECT amount FROM accounts WHERE owner = :owner AND name = :target);"
        " SELECT source.amount, target.amount;"
        " IF source.amount >= :least AND target IS NOT NULL THEN"
        "   UPDATE accounts SET amount -= :amount WHERE owner = :owner AND name = :source;"
        "   UPDATE accounts SET amount += :amount WHERE owner = :owner AND name = :target;"
        " END IF "
        "COMMIT TRANSACTION"
    )

    def moved(target, amount):
        values = {"owner": 1, "source": "a", "target": target, "least": amount, "amount": amount}
        return tuple(accounts.execute(move, values).one())

    assert moved("b", 30) == (100, 0)
    assert moved("b", 80) == (70, 30)
    assert moved("nobody", 5) == (70, None)
    left = {row.name: row.amount for row in accounts.execute("SELECT name, amount FROM accounts WHERE owner = 1")}
    assert left == {"a": 70, "b": 30}


def test_the_columns_of_the_answer_are_named_after_the_references(accounts):
    accounts.execute("INSERT INTO accounts (owner, name, amount, tags) VALUES (2, 'a', 5, {'x': 1})")
    text = (
        "BEGIN TRANSACTION LET r = (SELECT * FROM accounts WHERE owner = 2 AND name = 'a');"
        " SELECT r.amount, r.tags['x'], r.tags; COMMIT TRANSACTION"
    )
    answer = accounts.execute(text)
    assert answer.column_names[0] in ("r_amount", "r.amount")
    assert tuple(answer.one()) == (5, 1, {"x": 1})


def test_a_select_gives_the_rows_of_before(accounts):
    accounts.execute("INSERT INTO accounts (owner, name, total, amount) VALUES (3, 'a', 9, 5)")
    accounts.execute("INSERT INTO accounts (owner, name, amount) VALUES (3, 'b', 6)")
    text = (
        "BEGIN TRANSACTION SELECT name, amount, total FROM accounts WHERE owner = 3;"
        " DELETE FROM accounts WHERE owner = 3 AND name = 'a';"
        " UPDATE accounts SET total += 1 WHERE owner = 3; COMMIT TRANSACTION"
    )
    assert [tuple(row) for row in accounts.execute(text)] == [("a", 5, 9), ("b", 6, 9)]
    left = accounts.execute("SELECT name, amount, total FROM accounts WHERE owner = 3")
    assert [tuple(row) for row in left] == [("b", 6, 10)]


def test_a_transaction_that_only_writes_answers_nothing(accounts):
    answer = accounts.execute(
        "BEGIN TRANSACTION INSERT INTO accounts (owner, name, amount) VALUES (4, 'a', 1); COMMIT TRANSACTION"
    )
    assert answer.column_names is None or answer.column_names == []
    assert accounts.execute("SELECT amount FROM accounts WHERE owner = 4").one().amount == 1


def test_with_conditional_statements_of_the_same_rows(accounts):
    accounts.execute("INSERT INTO accounts (owner, name, amount) VALUES (5, 'a', 0)")
    by_transaction = accounts.prepare(
        "BEGIN TRANSACTION UPDATE accounts SET amount += 1 WHERE owner = 5 AND name = 'a'; COMMIT TRANSACTION"
    )
    by_condition = accounts.prepare("UPDATE accounts SET amount = ? WHERE owner = 5 AND name = 'a' IF amount = ?")
    rounds = 50

    def transactions(_):
        for _ in range(rounds):
            accounts.execute(by_transaction)

    def conditions(_):
        seen = 0
        for _ in range(rounds):
            while True:
                answer = accounts.execute(by_condition, (seen + 1, seen)).one()
                if answer.applied:
                    seen += 1
                    break
                seen = answer.amount

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, 0) for work in (transactions, conditions, transactions, conditions)]
        for one in done:
            one.result()
    assert accounts.execute("SELECT amount FROM accounts WHERE owner = 5").one().amount == 4 * rounds


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ("UPDATE accounts SET amount = 1 WHERE owner = 1 AND name = 'a'; ", None, None),
        (
            "UPDATE accounts SET amount = 1 WHERE owner = 1 AND name = 'a';"
            " UPDATE accounts SET amount = 1 WHERE owner = 2 AND name = 'a';",
            InvalidRequest,
            "A transaction cannot span multiple partitions",
        ),
        (
            "UPDATE accounts SET amount = 1 WHERE owner = 1 AND name = 'a'; UPDATE others SET v = 1 WHERE k = 1;",
            InvalidRequest,
            "A transaction cannot span multiple tables",
        ),
        (
            "INSERT INTO accounts (owner, name) VALUES (1, 'a') USING TTL 1;",
            InvalidRequest,
            "Updates within transactions may not specify custom ttls; INSERT statement at [1:19]",
        ),
        ("LET r = (SELECT * FROM others WHERE k = 1);", InvalidRequest, "Transaction contains no reads or writes"),
        ("USING TOKEN 1 UPDATE others SET v = 1 WHERE k = 1;", InvalidRequest, "Invalid INTEGER constant (1)"),
        ("USING TTL 1 UPDATE others SET v = 1 WHERE k = 1;", SyntaxException, "BEGIN TRANSACTION takes USING TOKEN only"),
    ],
)
def test_what_is_refused_is_refused_with_a_sentence(accounts, body, error, words):
    accounts.execute("CREATE TABLE IF NOT EXISTS others (k int PRIMARY KEY, v int)")
    text = f"BEGIN TRANSACTION {body} COMMIT TRANSACTION"
    if error is None:
        accounts.execute(text)
        return
    with pytest.raises(error) as refused:
        accounts.execute(text)
    assert words in str(refused.value)


def test_a_read_is_at_any_level(accounts):
    accounts.execute("INSERT INTO accounts (owner, name, amount) VALUES (6, 'a', 7)")
    for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL):
        text = "BEGIN TRANSACTION SELECT amount FROM accounts WHERE owner = 6 AND name = 'a'; COMMIT TRANSACTION"
        assert accounts.execute(SimpleStatement(text, consistency_level=level)).one().amount == 7


@pytest.fixture(scope="module")
def guarded():
    """A node whose clients log in, and its superuser's session."""
    settings = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "dynamic_data_masking_enabled": True,
    }
    with new_node(settings=settings) as running:
        made = command("admin", "create-superuser", "root", "--data-dir", running.data_dir, stdin="root\n")
        assert made[0] == 0, made
        with driver_session(running, auth_provider=PlainTextAuthProvider("root", "root")) as root:
            root.execute("CREATE TABLE k.t (id int PRIMARY KEY, open int, secret int, masked int MASKED WITH DEFAULT)")
            root.execute("INSERT INTO k.t (id, open, secret, masked) VALUES (1, 1, 4711, 4712)")
            root.execute("CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true")
            yield running, root


def test_each_part_needs_its_permission(guarded):
    running, root = guarded

    def stored():
        return root.execute("SELECT open FROM k.t WHERE id = 1").one().open

    reads = "BEGIN TRANSACTION LET r = (SELECT secret FROM k.t WHERE id = 1); SELECT r.secret; COMMIT TRANSACTION"
    copies = (
        "BEGIN TRANSACTION LET r = (SELECT secret FROM k.t WHERE id = 1);"
        " UPDATE k.t SET open = r.secret WHERE id = 1; COMMIT TRANSACTION"
    )
    tests_value = (
        "BEGIN TRANSACTION LET r = (SELECT secret FROM k.t WHERE id = 1);"
        " IF r.secret > 4000 THEN UPDATE k.t SET open = 2 WHERE id = 1; END IF COMMIT TRANSACTION"
    )
    writes = "BEGIN TRANSACTION UPDATE k.t SET open = 3 WHERE id = 1; COMMIT TRANSACTION"
    unmasks = "BEGIN TRANSACTION LET r = (SELECT masked FROM k.t WHERE id = 1); SELECT r.masked; COMMIT TRANSACTION"
    # The fixture of sessions makes its keyspace.
    root.execute("GRANT CREATE ON ALL KEYSPACES TO clerk")
    with driver_session(running, auth_provider=PlainTextAuthProvider("clerk", "clerk")) as clerk:
        for text in (reads, copies, tests_value, writes, unmasks):
            with pytest.raises(Unauthorized):
                clerk.execute(text)
        root.execute("GRANT SELECT (id, open, masked), MODIFY (id, open) ON k.t TO clerk")
        for text in (reads, copies, tests_value):
            with pytest.raises(Unauthorized) as refused:
                clerk.execute(text)
            assert "SELECT" in str(refused.value)
        with pytest.raises(Unauthorized) as refused:
            clerk.execute(unmasks)
        assert "UNMASK" in str(refused.value)
        assert stored() == 1
        clerk.execute(writes)
        assert stored() == 3
        root.execute("GRANT SELECT ON k.t TO clerk")
        assert clerk.execute(reads).one()[0] == 4711
        clerk.execute(tests_value)
        assert stored() == 2
        root.execute("GRANT UNMASK ON k.t TO clerk")
        assert clerk.execute(unmasks).one()[0] == 4712
