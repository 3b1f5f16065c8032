"""What the members tell of each other in virtual tables: announcements, traffic, hints, repairs."""

from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from load import make_table, write


def rows(session, table):
    return session.execute(f"SELECT * FROM {table}").all()


def test_members_traffic_hints_and_repairs_are_shown(connect):
    with Cluster(3, PROGRAM, settings={"automatic_repair": False}) as cluster:
        first, third = cluster.nodes[0], cluster.nodes[2]
        session = connect(cluster, only=first)
        insert = make_table(session)
        write(session, insert, range(100))

        members = {row.address: row for row in rows(session, "system_views.gossip_info")}
        assert sorted(members) == [node.host for node in cluster.nodes]
        for row in members.values():
            assert row.status_with_port.startswith("NORMAL,") and row.rpc_ready == "true"
            assert row.dc and row.rack and row.host_id and row.native_address_and_port.endswith(f":{cluster.port}")
        until("all schemas are known", lambda: len({row.schema for row in rows(session, "system_views.gossip_info")}) == 1)

        outbound = {row.address: row for row in rows(session, "system_views.internode_outbound")}
        assert sorted(outbound) == [node.host for node in cluster.nodes[1:]]
        for row in outbound.values():
            assert row.sent_count > 0 and row.sent_bytes > 0 and row.active_connections > 0
            assert row.connection_attempts >= row.successful_connection_attempts >= row.active_connections
        inbound = {row.address: row for row in rows(session, "system_views.internode_inbound")}
        assert inbound and all(row.received_count >= row.processed_count > 0 for row in inbound.values())

        assert rows(session, "system_views.pending_hints") == []
        Cluster.kill(third)
        write(session, insert, range(100, 200))

        def pending():
            found = rows(session, "system_views.pending_hints")
            return found if [row.status for row in found] == ["DOWN"] else None

        [hints] = until("hints are kept", pending)
        assert (hints.address, hints.files, hints.port) == (third.host, 1, cluster.internode_port)
        assert hints.oldest <= hints.newest and hints.rack == "rack3"
        third.start()
        until("hints are delivered", lambda: not rows(session, "system_views.pending_hints"))

        assert rows(session, "system_views.repairs") == []
        code, text = first.admin("repair", "shop", "items")
        assert code == 0, text
        [repair] = rows(session, "system_views.repairs")
        assert (repair.keyspace_name, repair.table_names, repair.status) == ("shop", ["items"], "success")
        assert repair.completed and repair.duration_millis >= 0 and repair.type == "full"
        [parent] = rows(session, "system_distributed.parent_repair_history")
        assert parent.parent_id == repair.id and parent.columnfamily_names == {"items"} and parent.finished_at
        assert rows(session, "system_distributed.repair_history")


def test_a_node_that_joins_shows_what_it_has_received(connect):
    with Cluster(1, PROGRAM) as cluster:
        session = connect(cluster, only=cluster.nodes[0], consistency=ConsistencyLevel.ONE)
        insert = make_table(session)
        write(session, insert, range(500))
        joined = cluster.add()
        alone = connect(cluster, only=joined, consistency=ConsistencyLevel.ONE)
        [stream] = until("the transfer is over", lambda: [row for row in rows(alone, "system_views.streaming") if row.status == "success"])
        assert stream.bytes_received > 0 and stream.progress_percentage == 100.0
        assert stream.peers == [f"{cluster.nodes[0].host}:{cluster.internode_port}"]
