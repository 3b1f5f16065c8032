//! The records in the node's own tables that are not part of [`super::shards`], and its identity.

use super::*;

/// A batch in the encoding of the batch log.
pub fn batch() -> Vec<u8> {
    let session = catalog_of(&[CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)"]);
    let table = session.catalog.keyspaces["ks"].tables["t"].clone();
    let change = PartitionMutation { token: 5, table, mutation: mutation() };
    batch_log::encode(&[change.clone(), change])
}

/// The mutations, each preceded by its length.
fn batched(mut bytes: &[u8]) -> Vec<Mutation> {
    let mut mutations = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (mutation, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        mutations.push(Mutation::from_bytes(Bytes::copy_from_slice(mutation)).unwrap());
        bytes = rest;
    }
    mutations
}

pub fn records() -> Vec<Sample> {
    let progress = StreamTaskProgress {
        wanted: vec![i64::MIN..=-5, 7..=9],
        resume: Some(b"a full key".to_vec()),
        is_done: false,
        fetched: vec![0..=5],
        bytes: 1 << 33,
    };
    let id = BatchId { created_micros: 1_700_000_000_000_000, random: 0x0123_4567_89ab_cdef };
    let ballots = [SerialScope::Global, SerialScope::Local].map(|scope| Ballot {
        micros: 1_700_000_000_000_000,
        salt: 7,
        host_id: host(1),
        scope,
    });
    let encode_ballot = |ballot: &Ballot| {
        let mut bytes = Vec::new();
        ballot.encode(&mut bytes);
        bytes
    };
    let decode_ballot = |bytes: &[u8]| Ballot::decode(bytes).unwrap().0;
    vec![
        Sample::postcard("progress of a stream", &progress),
        Sample::new(
            "mutation",
            &mutation(),
            |mutation| mutation.bytes().to_vec(),
            |bytes| Mutation::from_bytes(Bytes::copy_from_slice(bytes)).unwrap(),
        ),
        Sample::new("batch", &vec![mutation(), mutation()], |_| batch(), batched),
        Sample::new("position of a batch", &id, BatchId::position, move |position| {
            assert_eq!(position, id.position());
            id
        }),
        Sample::new("ballot", &ballots[0], encode_ballot, decode_ballot),
        Sample::new("ballot of a data center", &ballots[1], encode_ballot, decode_ballot),
    ]
}

/// `node.json`.
pub fn identities() -> Vec<Sample> {
    let mut identity = Identity::with_tokens(host(1), 2, 4);
    let alone = Sample::json("new", &identity);
    identity.cluster_name = Some("orchard".to_owned());
    vec![alone, Sample::json("of a cluster", &identity)]
}
