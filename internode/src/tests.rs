//! Two ends over loopback: a transport when all is well, and when the other side misbehaves.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{LocalBoxFuture, join_all};
use helenus_engine::io::{Clock, RealClock};
use helenus_ring::HostId;
use helenus_tls::stream::DetachedStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::encryption::LinkEncryption;
use super::frame::{self, Frame, FrameKind};
use super::handshake::{Local, Opening};
use super::incoming::{self, Server};
use super::link_context::LinkOptions;
use super::listener::{self, Acceptor};
use super::service::{Message, TrafficClass};
use super::tcp::TcpTransport;
use super::transport::{CallError, Destination, Handler, Transport};
use crate::metrics::InternodeMetrics;

mod encrypted;

/// Long enough for anything that should succeed.
const LONG: Duration = Duration::from_mins(1);

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

fn options() -> LinkOptions {
    LinkOptions { reconnect_max: Duration::from_millis(50), ..LinkOptions::default() }
}

/// A message of the data class.
fn data<B>(bytes: B) -> Message
where
    Bytes: From<B>,
{
    Message { class: TrafficClass::Data, bytes: Bytes::from(bytes) }
}

fn local(host: u128) -> Local {
    Local { cluster_name: "orchard".to_owned(), host_id: Uuid::from_u128(host), run_id: 1, shard_count: 2 }
}

/// Answers with its shard and the request. A request that begins with `wait` is answered only after a release.
#[derive(Default)]
struct Echo {
    heard: RefCell<Vec<(HostId, Bytes)>>,
    arrived: Notify,
    release: Notify,
    under_way: Cell<usize>,
    most_under_way: Cell<usize>,
}

impl Handler for Echo {
    fn handle(
        self: Rc<Self>,
        from: HostId,
        message: Bytes,
        needs_answer: bool,
    ) -> LocalBoxFuture<'static, Option<Bytes>> {
        Box::pin(async move {
            self.heard.borrow_mut().push((from, message.clone()));
            self.arrived.notify_one();
            self.under_way.set(self.under_way.get() + 1);
            self.most_under_way.set(self.most_under_way.get().max(self.under_way.get()));
            if message.starts_with(b"wait") {
                self.release.notified().await;
            }
            self.under_way.set(self.under_way.get() - 1);
            needs_answer.then_some(message)
        })
    }
}

/// A node that accepts links.
struct Node {
    address: SocketAddr,
    echo: Rc<Echo>,
    /// The shard that was given each link, in the order of their arrival.
    shards: Rc<RefCell<Vec<u16>>>,
    metrics: Arc<InternodeMetrics>,
    stopping: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start(local: Local, options: LinkOptions, address: Option<SocketAddr>) -> Self {
        Self::start_with(local, options, address, None).await
    }

    async fn start_with(
        local: Local,
        options: LinkOptions,
        address: Option<SocketAddr>,
        encryption: Option<LinkEncryption>,
    ) -> Self {
        let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = Rc::new(Echo::default());
        let shards = Rc::new(RefCell::new(Vec::new()));
        let metrics = Arc::new(InternodeMetrics::default());
        let stopping = watch::channel(false).0;
        let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
        let hand_over = {
            let (echo, shards, metrics, clock) =
                (echo.clone(), shards.clone(), metrics.clone(), clock.clone());
            let (options, stopping) = (options.clone(), stopping.subscribe());
            let encryption = encryption.clone();
            move |shard, stream: DetachedStream, peer| {
                shards.borrow_mut().push(shard);
                let server = Server {
                    handler: echo.clone(),
                    options: options.clone(),
                    encryption: encryption.clone(),
                    clock: clock.clone(),
                    metrics: metrics.clone(),
                    stopping: stopping.clone(),
                };
                let stream = stream.attach().unwrap();
                tokio::task::spawn_local(incoming::serve(server, stream, peer));
            }
        };
        let acceptor = Acceptor {
            local: Arc::new(local),
            clock,
            timeout: options.connect_timeout,
            encryption,
            is_removed: Box::new(|host_id| *host_id == Uuid::from_u128(99)),
            hand_over: Box::new(hand_over),
            stopping: stopping.subscribe(),
        };
        let accepting = tokio::task::spawn_local(listener::accept(listener, acceptor));
        Self { address, echo, shards, metrics, stopping, accepting }
    }

    async fn stop(self) -> SocketAddr {
        self.stopping.send_replace(true);
        self.accepting.await.unwrap();
        self.address
    }

    fn shard(&self, shard: u16) -> Destination {
        Destination { host_id: None, address: self.address, shard }
    }
}

fn transport_of(local: Local, options: LinkOptions) -> (TcpTransport, Arc<InternodeMetrics>) {
    let metrics = Arc::new(InternodeMetrics::default());
    let clock = Rc::new(RealClock::new());
    (TcpTransport::new(Arc::new(local), options, None, clock, 7, metrics.clone()), metrics)
}

fn transport() -> TcpTransport {
    transport_of(local(1), options()).0
}

/// Calls until the answer arrives: a node that has just been away is retried only after a pause.
async fn call_until_answered(transport: &TcpTransport, to: Destination) -> Bytes {
    loop {
        match transport.call(to, data(&b"again"[..]), LONG).await {
            Ok(answer) => return answer,
            Err(CallError::Unreachable { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_call_gets_its_answer_from_the_requested_shard() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let (transport, metrics) = transport_of(local(1), options());
        let answer = transport.call(node.shard(3), data(&b"hello"[..]), LONG).await;
        assert_eq!(answer, Ok(Bytes::from_static(b"hello")));
        assert_eq!(*node.shards.borrow(), [1], "the third of two shards");
        assert_eq!(*node.echo.heard.borrow(), [(Uuid::from_u128(1), Bytes::from_static(b"hello"))]);
        let (asker, answerer) = (&metrics, &node.metrics);
        assert_eq!((asker.calls.get(), answerer.requests.get()), (1, 1));
        assert_eq!((asker.links.get(), answerer.links.get()), (1, 1));
        assert_eq!(asker.sent_bytes.get(), answerer.received_bytes.get());
        assert_eq!(asker.sent_bytes.get(), asker.received_bytes.get());
    });
}

#[test]
fn calls_of_one_turn_share_a_link_and_are_answered_each() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let transport = transport();
        let requests: Vec<Bytes> =
            (0..500_usize).map(|n| Bytes::from(vec![n as u8 | 0x80; n * 100])).collect();
        let calls = requests.iter().map(|request| transport.call(node.shard(0), data(request.clone()), LONG));
        let answers: Vec<Bytes> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, requests);
        assert_eq!(*node.shards.borrow(), [0]);
    });
}

#[test]
fn traffic_classes_have_links_of_their_own() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let transport = transport();
        let classes = [TrafficClass::Data, TrafficClass::Control, TrafficClass::Stream];
        for class in classes.into_iter().chain(classes) {
            let message = Message { class, ..data(&b"a"[..]) };
            transport.call(node.shard(0), message, LONG).await.unwrap();
        }
        assert_eq!(*node.shards.borrow(), [0, 0, 0]);
    });
}

#[test]
fn a_message_arrives_and_has_no_answer() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let (transport, metrics) = transport_of(local(1), options());
        transport.send(node.shard(0), data(&b"gossip"[..]));
        node.echo.arrived.notified().await;
        assert_eq!(node.echo.heard.borrow().len(), 1);
        transport.call(node.shard(0), data(&b"a"[..]), LONG).await.unwrap();
        let one_answer = (frame::HEADER_BYTES + 1) as u64;
        assert_eq!(metrics.received_bytes.get(), one_answer);
    });
}

#[test]
fn calls_to_a_silent_node_end_by_their_deadlines() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let (transport, metrics) = transport_of(local(1), options());
        let calls = [20, 10, 30].map(|after_ms| {
            transport.call(node.shard(0), data(&b"wait"[..]), Duration::from_millis(after_ms))
        });
        let ended = join_all(calls).await;
        let address = node.address;
        let expected = [20, 10, 30].map(|after_ms| Err(CallError::TimedOut { address, after_ms }));
        assert_eq!(ended, expected);
        assert_eq!(metrics.timeouts.get(), 3);
        // Answers that come too late are dropped, and the link continues.
        node.echo.release.notify_waiters();
        let answer = transport.call(node.shard(0), data(&b"next"[..]), LONG).await;
        assert_eq!(answer, Ok(Bytes::from_static(b"next")));
    });
}

#[test]
fn a_peer_that_accepts_and_says_nothing_is_no_link() {
    run(async {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = mute.local_addr().unwrap();
        let options = LinkOptions { connect_timeout: Duration::from_millis(30), ..options() };
        let (transport, _) = transport_of(local(1), options);
        let to = Destination { host_id: None, address, shard: 0 };
        let short = transport.call(to, data(&b"a"[..]), Duration::from_millis(10));
        let long = transport.call(to, data(&b"a"[..]), LONG);
        assert_eq!(short.await, Err(CallError::TimedOut { address, after_ms: 10 }));
        let reason = "no link within 30 ms".to_owned();
        assert_eq!(long.await, Err(CallError::Unreachable { address, reason }));
    });
}

#[test]
fn a_link_whose_other_end_is_silent_is_closed() {
    run(async {
        let (address, _accepting) = after_handshake(|mut stream| async move {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        })
        .await;
        let options = LinkOptions { keepalive: Duration::from_millis(20), ..options() };
        let (transport, _) = transport_of(local(1), options);
        let to = Destination { host_id: None, address, shard: 0 };
        match transport.call(to, data(&b"a"[..]), LONG).await {
            Err(CallError::Unreachable { reason, .. }) => {
                assert!(reason.starts_with("silent for"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn an_idle_link_is_kept_open_by_pings() {
    run(async {
        let options = LinkOptions { keepalive: Duration::from_millis(20), ..options() };
        let node = Node::start(local(2), options.clone(), None).await;
        let (transport, metrics) = transport_of(local(1), options);
        transport.call(node.shard(0), data(&b"a"[..]), LONG).await.unwrap();
        let with_pong = (2 * frame::HEADER_BYTES + 1) as u64;
        while metrics.received_bytes.get() < with_pong {
            tokio::task::yield_now().await;
        }
        assert_eq!(node.shards.borrow().len(), 1);
    });
}

#[test]
fn a_node_that_comes_back_is_reached_again() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let transport = transport();
        let to = node.shard(0);
        let waiting = transport.call(to, data(&b"wait"[..]), LONG);
        node.echo.arrived.notified().await;
        let address = node.stop().await;
        let reason = "it is shutting down".to_owned();
        assert_eq!(waiting.await, Err(CallError::Unreachable { address, reason }));
        let away = transport.call(to, data(&b"a"[..]), LONG).await;
        assert!(matches!(away, Err(CallError::Unreachable { .. })), "{away:?}");
        let _node = Node::start(local(2), options(), Some(address)).await;
        assert_eq!(call_until_answered(&transport, to).await, Bytes::from_static(b"again"));
    });
}

#[test]
fn invalid_bytes_on_the_port_end_only_their_connection() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let mut stranger = TcpStream::connect(node.address).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: ring\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // Closed or reset: the connection has ended in both cases.
        let _ = stranger.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
        let answer = transport().call(node.shard(0), data(&b"a"[..]), LONG).await;
        assert_eq!(answer, Ok(Bytes::from_static(&b"a"[..])));
    });
}

#[test]
fn invalid_bytes_and_huge_lengths_after_the_handshake_end_the_link() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let mut huge = frame::header(FrameKind::Request, 1, 1_000, b"");
        huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let checksum = crc32fast::hash(&huge[..24]).to_le_bytes();
        huge[24..].copy_from_slice(&checksum);
        let mut answer = BytesMut::new();
        let wrong = Frame { kind: FrameKind::Answer, call_id: 1, deadline_ms: 0, payload: Bytes::new() };
        frame::encode(&mut answer, &wrong);
        for nonsense in [huge.to_vec(), answer.to_vec(), vec![7; 100]] {
            let mut stranger = TcpStream::connect(node.address).await.unwrap();
            let now_micros = RealClock::new().now_micros();
            local(3).hello(now_micros, 0).write(&mut stranger).await.unwrap();
            assert!(matches!(Opening::read(&mut stranger).await.unwrap(), Opening::Welcome { .. }));
            stranger.write_all(&nonsense).await.unwrap();
            let mut rest = Vec::new();
            let _ = stranger.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        }
        assert!(node.echo.heard.borrow().is_empty());
        let answer = transport().call(node.shard(0), data(&b"a"[..]), LONG).await;
        assert_eq!(answer, Ok(Bytes::from_static(&b"a"[..])));
    });
}

#[test]
fn an_invalid_answer_fails_the_call() {
    run(async {
        let (address, _accepting) =
            after_handshake(|mut stream| async move { stream.write_all(&[7; 64]).await.unwrap() }).await;
        let to = Destination { host_id: None, address, shard: 0 };
        let failed = transport().call(to, data(&b"a"[..]), LONG).await;
        assert!(matches!(failed, Err(CallError::Malformed { .. })), "{failed:?}");
    });
}

#[test]
fn nodes_that_do_not_belong_together_have_no_link() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let strangers = [
            (
                Local { cluster_name: "vineyard".to_owned(), ..local(1) },
                "code 1): a node of the cluster 'vineyard' is refused",
            ),
            (local(99), "code 4): node"),
            (Local { run_id: 8, ..local(2) }, "code 6): two nodes have the host id"),
        ];
        for (stranger, expected) in strangers {
            let (transport, _) = transport_of(stranger, options());
            match transport.call(node.shard(0), data(&b"a"[..]), LONG).await {
                Err(CallError::Refused { reason, .. } | CallError::Removed { reason, .. }) => {
                    assert!(reason.contains(expected), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(node.shards.borrow().is_empty());
    });
}

#[test]
fn a_call_for_a_node_does_not_reach_another_at_its_address() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let transport = transport();
        let of_another = Destination { host_id: Some(Uuid::from_u128(5)), ..node.shard(0) };
        let calls = [of_another, node.shard(0)].map(|to| transport.call(to, data(&b"a"[..]), LONG));
        for round in ["while the link is made", "over the link"] {
            let failed = transport.call(of_another, data(&b"a"[..]), LONG).await;
            assert!(matches!(failed, Err(CallError::Refused { .. })), "{round}: {failed:?}");
        }
        let [to_another, to_it] = calls;
        assert!(matches!(to_another.await, Err(CallError::Refused { .. })));
        assert_eq!(to_it.await, Ok(Bytes::from_static(&b"a"[..])));
        assert_eq!(node.echo.heard.borrow().len(), 1);
    });
}

#[test]
fn messages_that_wait_for_a_link_are_bounded() {
    run(async {
        let node = Node::start(local(2), options(), None).await;
        let few = LinkOptions { calls_per_link_max: 2, queue_bytes_max: 1_000, ..options() };
        let (transport, _) = transport_of(local(1), few);
        let address = node.address;
        let calls = [600, 600, 300].map(|length| transport.call(node.shard(0), data(vec![0; length]), LONG));
        let answers = join_all(calls).await;
        assert_eq!(answers[0], Ok(Bytes::from(vec![0; 600])));
        assert_eq!(answers[1], Err(CallError::Overloaded { address }));
        assert_eq!(answers[2], Ok(Bytes::from(vec![0; 300])));
        let _waiting = [0; 2].map(|_| transport.call(node.shard(0), data(&b"wait"[..]), LONG));
        let third = transport.call(node.shard(0), data(&b"a"[..]), LONG).await;
        assert_eq!(third, Err(CallError::Overloaded { address }));
    });
}

#[test]
fn requests_above_the_limit_are_not_read_until_others_have_ended() {
    run(async {
        let few = LinkOptions { requests_per_link_max: 3, ..options() };
        let node = Node::start(local(2), few, None).await;
        let transport = transport();
        let calls = (0..8).map(|_| transport.call(node.shard(0), data(&b"wait"[..]), LONG));
        let answers = join_all(calls);
        let release = async {
            while node.echo.heard.borrow().len() < 8 || node.echo.under_way.get() > 0 {
                node.echo.release.notify_waiters();
                tokio::task::yield_now().await;
            }
        };
        let (answers, ()) = tokio::join!(answers, release);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(node.echo.most_under_way.get(), 3);
    });
}

#[test]
fn messages_above_the_limit_are_an_error() {
    run(async {
        let (small, large) = (
            LinkOptions { frame_bytes_max: 1_000, ..options() },
            LinkOptions { frame_bytes_max: 10_000, ..options() },
        );
        let node = Node::start(local(2), small.clone(), None).await;
        let to = node.shard(0);
        let (transport, _) = transport_of(local(1), small);
        let refused = transport.call(to, data(vec![0; 1_001]), LONG).await;
        assert_eq!(
            refused,
            Err(CallError::TooLarge { address: node.address, bytes: 1_001, limit_bytes: 1_000 })
        );
        let (transport, _) = transport_of(local(1), large);
        let dropped = transport.call(to, data(vec![0; 1_001]), LONG).await;
        assert!(matches!(dropped, Err(CallError::Unreachable { .. })), "{dropped:?}");
    });
}

/// A listener that welcomes one link and passes it to `then`.
async fn after_handshake<F, Fut>(then: F) -> (SocketAddr, tokio::task::JoinHandle<()>)
where
    F: FnOnce(TcpStream) -> Fut + 'static,
    Fut: Future<Output = ()>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::task::spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        Opening::read(&mut stream).await.unwrap();
        let node = local(2).greeting(RealClock::new().now_micros());
        Opening::Welcome { version: 1, node, shard: 0 }.write(&mut stream).await.unwrap();
        then(stream).await;
    });
    (address, task)
}

/// The number of calls per second on one link. For people:
/// `cargo test --release -p helenus-internode --lib -- --ignored calls_a_second`
#[test]
#[ignore = "a measurement"]
fn calls_a_second_of_100_bytes_with_64_in_flight() {
    const CALLS: u64 = 400_000;
    let (sender, receiver) = std::sync::mpsc::channel();
    let _server = std::thread::spawn(move || {
        run(async move {
            let node = Node::start(local(2), options(), None).await;
            sender.send(node.address).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let address = receiver.recv().unwrap();
    run(async move {
        let transport = Rc::new(transport());
        let to = Destination { host_id: None, address, shard: 0 };
        let clock = RealClock::new();
        let askers = (0..64).map(|_| {
            let transport = transport.clone();
            tokio::task::spawn_local(async move {
                for _ in 0..CALLS / 64 {
                    transport.call(to, data(&[0; 100][..]), LONG).await.unwrap();
                }
            })
        });
        let started = clock.monotonic();
        join_all(askers).await;
        let seconds = clock.monotonic().saturating_sub(started).as_secs_f64();
        println!("{:.0} calls a second", CALLS as f64 / seconds);
    });
}
