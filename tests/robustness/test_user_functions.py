"""User-defined functions: what drivers see of them, what harmful ones cost, and that all nodes know them."""

import threading
import time

import pytest
from cassandra import FunctionFailure, InvalidRequest
from cassandra.protocol import SyntaxException
from cluster import Cluster, until
from conftest import driver_session, new_node, program

ENABLED = {"user_defined_functions_enabled": True}
PLUS = "CREATE OR REPLACE FUNCTION plus (a int, b int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a + b'"
HARMFUL = [
    "while true do end",
    "return ('a'):rep(100000):match(('a*'):rep(30) .. 'b')",
    "return #string.rep('x', 1e9)",
    "local t = {} while true do t[#t + 1] = ('x'):rep(10000) end",
    "local function f() return 1 + f() end return f()",
    "table.sort({1, 2, 3}, function() while true do end end)",
    "local s = ('x'):rep(4000000) while true do local t = s .. s end",
]


@pytest.fixture(scope="module")
def node():
    with new_node(settings=ENABLED) as running:
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node) as connected:
        connected.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
        for k in range(100):
            connected.execute("INSERT INTO t (k, v) VALUES (%s, %s)", (k, k * 2))
        yield connected


def test_functions_are_off_unless_the_setting_allows_them(tmp_path):
    with new_node(data_dir=tmp_path / "data") as node, driver_session(node) as session:
        with pytest.raises(InvalidRequest, match="User-defined functions are disabled"):
            session.execute(PLUS)


def test_the_driver_knows_functions_and_aggregates(node, session):
    session.execute(PLUS)
    session.execute("CREATE AGGREGATE total (int) SFUNC plus STYPE int INITCOND 0")
    metadata = session.cluster.metadata.keyspaces["k"]
    function = until("the driver knows the function", lambda: metadata.functions.get("plus(int,int)"))
    assert (function.argument_names, function.return_type, function.language) == (["a", "b"], "int", "lua")
    aggregate = until("the driver knows the aggregate", lambda: metadata.aggregates.get("total(int)"))
    assert (aggregate.state_func, aggregate.initial_condition) == ("plus", "0")
    assert session.execute("SELECT total(v) FROM t").one()[0] == sum(k * 2 for k in range(100))
    session.execute("DROP AGGREGATE total")
    until("the driver has forgotten the aggregate", lambda: "total(int)" not in metadata.aggregates)


def test_a_replaced_function_is_used_by_prepared_statements(session):
    session.execute(PLUS)
    prepared = session.prepare("SELECT plus(v, ?) FROM t WHERE k = ?")
    assert session.execute(prepared, (1, 5)).one()[0] == 11
    session.execute(PLUS.replace("a + b", "a - b"))
    assert session.execute(prepared, (1, 5)).one()[0] == 9
    session.execute("DROP FUNCTION plus")
    with pytest.raises(InvalidRequest, match="Unknown function"):
        session.execute(prepared, (1, 5))


def test_harmful_functions_fail_and_the_node_goes_on(session):
    for body in HARMFUL:
        session.execute(f"CREATE OR REPLACE FUNCTION harm (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS $${body}$$")
        started = time.monotonic()
        with pytest.raises(FunctionFailure) as failure:
            session.execute("SELECT harm(v) FROM t WHERE k = 1")
        assert time.monotonic() - started < 10, body
        assert (failure.value.keyspace, failure.value.function, failure.value.arg_types) == ("k", "harm", ["int"])
        assert session.execute("SELECT v FROM t WHERE k = 1").one()[0] == 2
    with pytest.raises(SyntaxException):
        session.execute("CREATE FUNCTION harm (a int) RETURNS int LANGUAGE lua AS 'return a'")


def test_costly_functions_let_other_requests_pass(session):
    body = "local n = 0 for i = 1, 30000 do n = n + i % 7 end return a"
    session.execute(f"CREATE OR REPLACE FUNCTION costly (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS '{body}'")
    running = session.execute_async("SELECT sum(costly(v)) FROM t")
    slowest, others = 0.0, 0
    done = threading.Event()
    running.add_callbacks(lambda _: done.set(), lambda _: done.set())
    while not done.is_set():
        started = time.monotonic()
        session.execute("SELECT v FROM t WHERE k = 3")
        slowest, others = max(slowest, time.monotonic() - started), others + 1
    assert running.result().one()[0] == sum(k * 2 for k in range(100))
    assert others >= 2 and slowest < 5, (others, slowest)


def test_all_nodes_know_functions_also_after_a_restart(tmp_path):
    with Cluster(2, program(), settings=ENABLED) as cluster:
        with driver_session(cluster.nodes[0]) as session:
            session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
            session.execute("INSERT INTO t (k, v) VALUES (1, 20)")
            session.execute(PLUS)
        for node in cluster.nodes:
            with driver_session(node) as session:
                assert session.execute("SELECT plus(v, k) FROM t").one()[0] == 21
        cluster.nodes[1].stop()
        cluster.nodes[1].start()
        with driver_session(cluster.nodes[1]) as session:
            assert session.execute("SELECT plus(v, k) FROM t").one()[0] == 21
