"""`BEGIN TRANSACTION USING TOKEN`: it takes effect once, though it is sent again: by several clients, after a lost connection, after a crash."""

import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import InvalidRequest
from conftest import driver_session, new_node

CLIENTS = 8
TOKENS = 25
INCREMENT = (
    "BEGIN TRANSACTION USING TOKEN ?"
    " LET row = (SELECT n FROM tokens WHERE k = ?);"
    " SELECT row.n;"
    " UPDATE tokens SET n += 1 WHERE k = ?;"
    " COMMIT TRANSACTION"
)


def make_table(session):
    session.execute("CREATE TABLE IF NOT EXISTS tokens (k int PRIMARY KEY, n int, b blob)")


@pytest.fixture(scope="module")
def tokens(session):
    """A table of numbers, and the statement that adds to them."""
    make_table(session)
    return session, session.prepare(INCREMENT)


def number(session, k):
    return session.execute("SELECT n FROM tokens WHERE k = %s", (k,)).one().n


def test_the_token_is_a_marker_and_no_part_of_the_routing(tokens):
    _, increment = tokens
    described = [(it.name, it.type.typename) for it in increment.column_metadata]
    assert described == [("[token]", "uuid"), ("k", "int"), ("k", "int")]
    assert increment.routing_key_indexes == [1]


def test_of_many_clients_with_one_token_each_gets_the_answer_of_the_first(tokens):
    session, increment = tokens
    session.execute("INSERT INTO tokens (k, n) VALUES (1, 0)")
    of_clients = [uuid.uuid4() for _ in range(TOKENS)]

    def work(_):
        return [session.execute(increment, (token, 1, 1)).one()[0] for token in of_clients]

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(work, range(CLIENTS)))
    # Of the same token, the same; and one number for each token.
    assert all(answer == answers[0] for answer in answers)
    assert sorted(answers[0]) == list(range(TOKENS))
    assert number(session, 1) == TOKENS


def test_what_is_sent_again_after_a_lost_connection_is_done_once(node, tokens):
    session, _ = tokens
    session.execute("INSERT INTO tokens (k, n) VALUES (2, 0)")
    of_clients = [uuid.uuid4() for _ in range(TOKENS)]
    with driver_session(node) as lost:
        increment = lost.prepare(INCREMENT)
        for token in of_clients:
            lost.execute_async(increment, (token, 2, 2))
    # The connection was closed while some were on their way: whether they took effect cannot be known.
    with driver_session(node) as again:
        increment = again.prepare(INCREMENT)
        seen = [again.execute(increment, (token, 2, 2)).one()[0] for token in of_clients]
    assert sorted(seen) == list(range(TOKENS))
    assert number(session, 2) == TOKENS


def test_by_text_and_prepared_are_two_transactions(tokens):
    session, increment = tokens
    session.execute("INSERT INTO tokens (k, n) VALUES (3, 0)")
    token = uuid.uuid4()
    assert session.execute(increment, (token, 3, 3)).one()[0] == 0
    text = INCREMENT.replace("TOKEN ?", f"TOKEN {token}").replace("k = ?", "k = 3")
    with pytest.raises(InvalidRequest, match=f"Token {token} was used by another transaction"):
        session.execute(text)
    # A token belongs to its partition.
    session.execute("INSERT INTO tokens (k, n) VALUES (4, 0)")
    assert session.execute(increment, (token, 4, 4)).one()[0] == 0
    assert (number(session, 3), number(session, 4)) == (1, 1)


def test_an_answer_that_is_too_large_is_refused_before_anything_is_done(tokens):
    session, _ = tokens
    session.execute("INSERT INTO tokens (k, n, b) VALUES (5, 0, %s)", (bytes(70_000),))
    text = (
        f"BEGIN TRANSACTION USING TOKEN {uuid.uuid4()} SELECT b FROM tokens WHERE k = 5;"
        " UPDATE tokens SET n += 1 WHERE k = 5; COMMIT TRANSACTION"
    )
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="may take 65536 bytes"):
            session.execute(text)
    assert number(session, 5) == 0


def test_tokens_outlive_the_process():
    with new_node(commit_log="group") as running:
        acknowledged = {}
        with driver_session(running) as session:
            make_table(session)
            session.execute("INSERT INTO tokens (k, n) VALUES (1, 0)")
            increment = session.prepare(INCREMENT)
            for token in itertools.islice(iter(uuid.uuid4, None), TOKENS):
                acknowledged[token] = session.execute(increment, (token, 1, 1)).one()[0]
        running.process.kill()
        running.process.wait()
        running.process.stdout.close()
        running.process = None
        running.start()
        with driver_session(running) as session:
            increment = session.prepare(INCREMENT)
            for token, answer in acknowledged.items():
                assert session.execute(increment, (token, 1, 1)).one()[0] == answer
            assert number(session, 1) == TOKENS
