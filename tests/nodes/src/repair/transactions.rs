//! A repair settles the transactions of before whose outcome is open on some replica.

use helenus_execution::coordinator::paxos::ballot::{Ballot, SerialScope};
use helenus_execution::coordinator::paxos::message::{
    PartitionName, PaxosOrder, PaxosRequest, PaxosResponse,
};
use helenus_execution::coordinator::paxos::proposer::Question;
use helenus_execution::coordinator::paxos::replica::receive;
use helenus_execution::coordinator::paxos::state::{Proposal, Trail};

use super::*;
use crate::replication::changes;
use crate::settling::states;

#[test]
fn a_proposal_that_only_one_replica_has_accepted_is_finished_by_a_repair() {
    with_cluster(3, &config(), |cluster| async move {
        let change = changes(&cluster, &["INSERT INTO three.t (k, v) VALUES (1, 10)"]).remove(0);
        let partition = {
            let view = change.mutation.view().unwrap();
            PartitionName { table_id: view.table.0, token: view.token, key: view.partition_key.to_vec() }
        };
        let context = &cluster.nodes[2][0];
        let micros = context.next_timestamp();
        let ballot = Ballot { micros, salt: 1, host_id: host_id(0), scope: SerialScope::Global };
        let mutation = Some(change.mutation.bytes().to_vec());
        let proposal = Proposal { origin: ballot, mutation, trail: Trail::default() };
        let order = PaxosOrder::Ask { question: Question::Propose { ballot, proposal }, read: None };
        let request = PaxosRequest { epoch: cluster.topology().epoch, partition, order };
        let answer = receive(context, request).await;
        assert!(matches!(answer, Ok(PaxosResponse::Accepted)), "{answer:?}");
        cluster.pass(Duration::from_secs(1)).await;
        repair(&cluster, 0, scope("t")).await.unwrap();
        for node in 0..3 {
            assert!(states(&cluster, node).iter().all(|(_, state)| state.is_stable()), "node {node}");
            assert_eq!(cluster.stored(node, "three", "t").len(), 1, "node {node}");
        }
    });
}
