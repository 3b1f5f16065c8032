//! Handshakes of links, frames, and messages of the failure detectors.

use super::*;

pub fn facts(state: ServingState) -> NodeStatus {
    NodeStatus {
        generation: 1_700_000_000_000_000,
        sequence: 3,
        state,
        schema_version: Uuid::from_u128(12),
        topology_version: 12,
        data_bytes: 1 << 40,
    }
}

pub fn openings() -> Vec<Sample> {
    let local =
        Local { cluster_name: "orchard".to_owned(), host_id: host(1), run_id: u64::MAX - 1, shard_count: 4 };
    let node = local.greeting(1_700_000_000_000_000);
    let other = Greeting { host_id: host(2), cluster_name: "Weinberg ü".to_owned(), ..node.clone() };
    let opening = |name: &str, opening: &Opening| {
        Sample::new(name, opening, Opening::encode, |bytes| Opening::decode(bytes).unwrap())
    };
    let refusal =
        |name: &str, refusal: &LinkRefusal| opening(&format!("refusal {name}"), &Opening::refusal(refusal));
    let (ours, theirs) = ("orchard".to_owned(), "vineyard".to_owned());
    let version = LinkRefusal::Version { theirs_min: 2, theirs_max: 3, ours_min: 1, ours_max: 1 };
    vec![
        opening("hello", &Opening::Hello { version_min: 1, version_max: 1, node, wanted_shard: 3 }),
        opening("welcome", &Opening::Welcome { version: 1, node: other, shard: 3 }),
        refusal("cluster", &LinkRefusal::Cluster { theirs, ours }),
        refusal("version", &version),
        refusal("host", &LinkRefusal::Host { expected: host(1), found: host(2) }),
        refusal("removed", &LinkRefusal::Removed(host(1))),
        refusal("clock", &LinkRefusal::Clock { seconds: 11 }),
        refusal("same host", &LinkRefusal::SameHost(host(1))),
    ]
}

pub fn frames() -> Vec<Sample> {
    let kinds = [
        ("request", FrameKind::Request),
        ("one way", FrameKind::OneWay),
        ("answer", FrameKind::Answer),
        ("goodbye", FrameKind::Goodbye),
        ("ping", FrameKind::Ping),
        ("pong", FrameKind::Pong),
        ("failed", FrameKind::Failed),
    ];
    let sample = |(name, kind)| {
        let payload = Bytes::from_static(b"orchard");
        let frame = Frame { kind, call_id: u64::MAX - 2, deadline_ms: 2_000, payload };
        let encode = |frame: &Frame| {
            let mut bytes = BytesMut::new();
            frame::encode(&mut bytes, frame);
            bytes.to_vec()
        };
        let decode = |bytes: &[u8]| {
            let mut input = BytesMut::from(bytes);
            let frame = Decoder::new(1 << 20).next(&mut input).unwrap().unwrap();
            assert!(input.is_empty());
            frame
        };
        Sample::new(name, &frame, encode, decode)
    };
    kinds.into_iter().map(sample).collect()
}

fn detector(number: u8) -> Detector {
    let identity = NodeIdentity {
        host_id: host(number.into()),
        address: address(&format!("10.0.0.{number}:7000")),
        generation: 1_700_000_000_000_000,
    };
    Detector::new(identity, Settings::default(), number.into(), Duration::ZERO)
}

/// Members 1 and 2 know only each other's address.
fn detectors() -> (Detector, Detector) {
    let (mut first, mut second) = (detector(1), detector(2));
    first.set_members(BTreeMap::from([(host(2), address("10.0.0.2:7000"))]), Duration::ZERO).unwrap();
    second.set_members(BTreeMap::from([(host(1), address("10.0.0.1:7000"))]), Duration::ZERO).unwrap();
    (first, second)
}

/// The only waiting message.
fn sent(detector: &mut Detector) -> Vec<u8> {
    let sends = detector.take_sends();
    assert_eq!(sends.len(), 1);
    sends[0].1.to_vec()
}

/// The announcement of the first member, and the answer of the second. Shown are the members that answer, as the
/// receiver sees them.
pub fn gossip() -> Vec<Sample> {
    let (mut first, mut second) = detectors();
    let announcement = sent(&mut first);
    let _ = second.take_sends();
    second.receive(&announcement, Duration::ZERO).unwrap();
    let answer = sent(&mut second);
    let show_announcement = |bytes: &[u8]| {
        let (_, mut second) = detectors();
        second.receive(bytes, Duration::ZERO).unwrap();
        format!("{:?}", second.active())
    };
    let show_answer = |bytes: &[u8]| {
        let (mut first, _) = detectors();
        first.receive(bytes, Duration::ZERO).unwrap();
        format!("{:?}", first.active())
    };
    let active = |number| format!("{:?}", BTreeMap::from([(host(number), 1_700_000_000_000_000_u64)]));
    let states = [
        ServingState::Starting,
        ServingState::Serving,
        ServingState::Leaving,
        ServingState::Failed,
        ServingState::Draining,
        ServingState::Drained,
        ServingState::Removed,
    ];
    let mut samples: Vec<Sample> =
        states.iter().map(|state| Sample::postcard(&format!("facts {state:?}"), &facts(*state))).collect();
    samples.push(Sample {
        name: "announcement".to_owned(),
        bytes: announcement,
        shown: active(1),
        show: Box::new(show_announcement),
    });
    samples.push(Sample {
        name: "answer".to_owned(),
        bytes: answer,
        shown: active(2),
        show: Box::new(show_answer),
    });
    samples
}
