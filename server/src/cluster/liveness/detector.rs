//! The failure detector: SWIM (`foca`) without I/O. It takes bytes and the time, and returns bytes and the set of
//! members that answer.
//!
//! Invariants:
//! * The result depends only on the seed, the times and the bytes passed in.
//! * The caller names the members ([`Detector::set_members`]): a newly named one is announced to until it answers,
//!   one that is not named any more counts as down.
//! * A node that was declared down although it runs (paused, cut off) comes back by itself under a higher generation.
//!   So does a node whose clock, and with it its first generation, went back while it was stopped.
//! * A node that was paused itself blames no other node for that: late timers delay all others by as much.
//!
//! The course of a failure, with the default settings: a member is probed about every second by some other member.
//! Without an answer within `probe_timeout`, other members are asked to probe it. At the end of `probe_period` it is
//! suspected, and after `suspicion`, unless it refutes that, it is down. So a killed node is detected within 5 to 8
//! seconds, and one that pauses for less than `suspicion` is never down.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use foca::{
    Codec, Foca, Header, Identity, Member, NoCustomBroadcast, Notification, PeriodicParams, PostcardCodec,
    Runtime, Timer,
};
use helenus_ring::HostId;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// How soon a silent member is suspected and declared down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// In each period, every node probes one other node.
    pub probe_period: Duration,
    /// The time to wait for an answer before others are asked to probe; less than half of the period.
    pub probe_timeout: Duration,
    /// The time that a suspect has to refute the suspicion.
    pub suspicion: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            probe_period: Duration::from_secs(1),
            probe_timeout: Duration::from_millis(450),
            suspicion: Duration::from_secs(4),
        }
    }
}

/// Number of members that are asked to probe a member that does not answer.
const INDIRECT_PROBES: usize = 3;
/// Interval at which updates are also sent on their own, and the number of receivers.
const GOSSIP_PERIOD: Duration = Duration::from_millis(250);
const GOSSIP_MEMBERS: usize = 2;
/// A message holds the state of hundreds of members. Links are streams, so a smaller limit gains nothing.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Time for which a generation that is down is remembered.
const DOWN_REMEMBERED: Duration = Duration::from_hours(24);
/// Interval at which members that do not answer are announced to, and the most at a time.
const ANNOUNCE_PERIOD: Duration = Duration::from_secs(1);
const ANNOUNCED_AT_ONCE: usize = 5;
/// A timer that is later than this shows that the node was paused.
const STALL: Duration = Duration::from_millis(500);

/// A generation of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIdentity {
    pub host_id: HostId,
    pub address: SocketAddr,
    /// Higher for each run: microseconds since the epoch at its start, unless the clock went back.
    pub generation: u64,
}

impl Identity for NodeIdentity {
    type Addr = HostId;

    fn renew(&self) -> Option<Self> {
        Some(Self { generation: self.generation.checked_add(1)?, ..self.clone() })
    }

    fn addr(&self) -> HostId {
        self.host_id
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.generation > adversary.generation
    }
}

/// Decodes messages unchanged, and records the highest generation under which others know this node.
struct ObservingCodec {
    host_id: HostId,
    known_generation: Rc<Cell<u64>>,
}

impl ObservingCodec {
    fn observe(&self, identity: &NodeIdentity) {
        if identity.host_id == self.host_id {
            self.known_generation.set(self.known_generation.get().max(identity.generation));
        }
    }
}

impl Codec<NodeIdentity> for ObservingCodec {
    type Error = <PostcardCodec as Codec<NodeIdentity>>::Error;

    fn encode_header(
        &mut self,
        header: &Header<NodeIdentity>,
        buffer: impl BufMut,
    ) -> Result<(), Self::Error> {
        PostcardCodec.encode_header(header, buffer)
    }

    fn decode_header(&mut self, buffer: impl Buf) -> Result<Header<NodeIdentity>, Self::Error> {
        let header: Header<NodeIdentity> = PostcardCodec.decode_header(buffer)?;
        self.observe(&header.dst);
        Ok(header)
    }

    fn encode_member(
        &mut self,
        member: &Member<NodeIdentity>,
        buffer: impl BufMut,
    ) -> Result<(), Self::Error> {
        PostcardCodec.encode_member(member, buffer)
    }

    fn decode_member(&mut self, buffer: impl Buf) -> Result<Member<NodeIdentity>, Self::Error> {
        let member: Member<NodeIdentity> = PostcardCodec.decode_member(buffer)?;
        self.observe(member.id());
        Ok(member)
    }
}

/// The actions that the protocol has requested.
#[derive(Default)]
struct Wishes {
    now: Duration,
    sends: Vec<(NodeIdentity, Bytes)>,
    /// Ordered by the time at which they are due, then by the order of the requests.
    timers: BTreeMap<(Duration, u64), Timer<NodeIdentity>>,
    timers_set: u64,
    has_rejoined: bool,
}

impl Runtime<NodeIdentity> for Wishes {
    fn notify(&mut self, notification: Notification<'_, NodeIdentity>) {
        if let Notification::Rejoin(_) = notification {
            self.has_rejoined = true;
        }
    }

    fn send_to(&mut self, to: NodeIdentity, data: &[u8]) {
        self.sends.push((to, Bytes::copy_from_slice(data)));
    }

    fn submit_after(&mut self, event: Timer<NodeIdentity>, after: Duration) {
        self.timers_set += 1;
        self.timers.insert((self.now + after, self.timers_set), event);
    }
}

/// The failure detector of one node.
pub struct Detector {
    foca: Foca<NodeIdentity, ObservingCodec, StdRng, NoCustomBroadcast>,
    settings: Settings,
    wishes: Wishes,
    known_generation: Rc<Cell<u64>>,
    /// The other members, whether they answer or not.
    members: BTreeMap<HostId, SocketAddr>,
    next_announcement: Duration,
    /// The last member that was announced to: the next ones in order follow.
    announced: Option<HostId>,
    has_left: bool,
}

impl Detector {
    /// `now` is from a monotonic clock, like all times passed in.
    pub fn new(identity: NodeIdentity, settings: Settings, seed: u64, now: Duration) -> Self {
        let known_generation = Rc::new(Cell::new(identity.generation));
        let codec = ObservingCodec { host_id: identity.host_id, known_generation: known_generation.clone() };
        let foca = Foca::new(identity, configuration(settings, 1), StdRng::seed_from_u64(seed), codec);
        Self {
            foca,
            settings,
            wishes: Wishes { now, ..Wishes::default() },
            known_generation,
            members: BTreeMap::new(),
            next_announcement: now,
            announced: None,
            has_left: false,
        }
    }

    /// The present identity of this node.
    pub fn identity(&self) -> &NodeIdentity {
        self.foca.identity()
    }

    /// Sets the other members. New ones are announced to at once; those no longer named are declared down.
    pub fn set_members(
        &mut self,
        members: BTreeMap<HostId, SocketAddr>,
        now: Duration,
    ) -> Result<(), foca::Error> {
        self.wishes.now = now;
        if self.has_left || members == self.members {
            return Ok(());
        }
        let gone: Vec<Member<NodeIdentity>> = self
            .foca
            .iter_members()
            .map(Member::id)
            .filter(|identity| {
                self.members.contains_key(&identity.host_id) && !members.contains_key(&identity.host_id)
            })
            .map(|identity| Member::down(identity.clone()))
            .collect();
        self.members = members;
        self.foca.set_config(configuration(self.settings, self.members.len() + 1))?;
        if !gone.is_empty() {
            self.foca.apply_many(gone.into_iter(), true, &mut self.wishes)?;
        }
        self.next_announcement = now;
        self.announce()
    }

    /// Takes a message from another node's detector.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<(), foca::Error> {
        self.wishes.now = now;
        if self.has_left {
            return Ok(());
        }
        let outcome = self.foca.handle_data(bytes, &mut self.wishes);
        let known = self.known_generation.get();
        let own = self.foca.identity();
        if known > own.generation
            && let Some(generation) = known.checked_add(1)
        {
            // An earlier run had a later clock: others take this run for the older one.
            let identity = NodeIdentity { generation, ..own.clone() };
            self.known_generation.set(generation);
            self.foca.change_identity(identity, &mut self.wishes)?;
            self.wishes.has_rejoined = true;
        }
        self.greet_after_rejoining()?;
        outcome
    }

    /// Handles everything that is due.
    pub fn tick(&mut self, now: Duration) -> Result<(), foca::Error> {
        self.wishes.now = now;
        if self.has_left {
            return Ok(());
        }
        if let Some((&(due, _), _)) = self.wishes.timers.first_key_value() {
            let late = now.saturating_sub(due);
            if late > STALL {
                let timers = std::mem::take(&mut self.wishes.timers);
                self.wishes.timers =
                    timers.into_iter().map(|((due, number), timer)| ((due + late, number), timer)).collect();
            }
        }
        let mut outcome = Ok(());
        while let Some(entry) = self.wishes.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let timer = entry.remove();
            let handled = match self.foca.handle_timer(timer, &mut self.wishes) {
                // This node was renamed during a probe; the next one has begun.
                Err(foca::Error::IncompleteProbeCycle) => Ok(()),
                handled => handled,
            };
            outcome = outcome.and(handled);
        }
        self.greet_after_rejoining()?;
        self.announce()?;
        outcome
    }

    /// Announces that this node leaves. Afterwards the detector is inactive.
    pub fn leave(&mut self, now: Duration) -> Result<(), foca::Error> {
        self.wishes.now = now;
        if self.has_left {
            return Ok(());
        }
        self.has_left = true;
        self.wishes.timers.clear();
        self.foca.leave_cluster(&mut self.wishes)
    }

    /// The time at which [`Detector::tick`] has something to do.
    pub fn next_due(&self) -> Option<Duration> {
        if self.has_left {
            return None;
        }
        let timer = self.wishes.timers.first_key_value().map(|(&(due, _), _)| due);
        let announcement = (!self.members.is_empty()).then_some(self.next_announcement);
        timer.into_iter().chain(announcement).min()
    }

    /// Takes the messages to be sent.
    pub fn take_sends(&mut self) -> Vec<(NodeIdentity, Bytes)> {
        std::mem::take(&mut self.wishes.sends)
    }

    /// The members that answer, with their generations. Suspects count as answering. Empty after leaving.
    pub fn active(&self) -> BTreeMap<HostId, u64> {
        if self.has_left {
            return BTreeMap::new();
        }
        let active = self.foca.iter_members().map(Member::id);
        active
            .filter(|identity| self.members.contains_key(&identity.host_id))
            .map(|identity| (identity.host_id, identity.generation))
            .collect()
    }

    fn greet_after_rejoining(&mut self) -> Result<(), foca::Error> {
        if std::mem::take(&mut self.wishes.has_rejoined) {
            self.next_announcement = self.wishes.now;
            self.announce()?;
        }
        Ok(())
    }

    /// Announces this node to some of the members that do not answer, if that is due.
    fn announce(&mut self) -> Result<(), foca::Error> {
        if self.wishes.now < self.next_announcement {
            return Ok(());
        }
        self.next_announcement = self.wishes.now + ANNOUNCE_PERIOD;
        let active = self.active();
        let silent: Vec<(HostId, SocketAddr)> = self
            .members
            .iter()
            .filter(|(host_id, _)| !active.contains_key(*host_id))
            .map(|(&host_id, &address)| (host_id, address))
            .collect();
        let first = silent.partition_point(|(host_id, _)| Some(*host_id) <= self.announced);
        let (before, after) = silent.split_at(first);
        for &(host_id, address) in after.iter().chain(before).take(ANNOUNCED_AT_ONCE) {
            self.announced = Some(host_id);
            // An announcement reaches every generation.
            self.foca.announce(NodeIdentity { host_id, address, generation: 0 }, &mut self.wishes)?;
        }
        Ok(())
    }
}

fn configuration(settings: Settings, members: usize) -> foca::Config {
    // As often as an update needs to reach all members almost surely.
    let transmissions = (4.0 * ((members + 1) as f64).log10()).ceil().clamp(8.0, 20.0) as u8;
    let at_least_one = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
    foca::Config {
        probe_period: settings.probe_period,
        probe_rtt: settings.probe_timeout,
        num_indirect_probes: at_least_one(INDIRECT_PROBES),
        max_transmissions: NonZeroU8::new(transmissions).unwrap_or(NonZeroU8::MIN),
        suspect_to_down_after: settings.suspicion,
        remove_down_after: Some(DOWN_REMEMBERED),
        max_packet_size: at_least_one(MESSAGE_BYTES_MAX),
        notify_down_members: true,
        periodic_announce: None,
        periodic_announce_to_down_members: None,
        periodic_gossip: Some(PeriodicParams {
            frequency: GOSSIP_PERIOD,
            num_members: at_least_one(GOSSIP_MEMBERS),
        }),
    }
}

/// The sender of a message.
pub fn sender(bytes: &[u8]) -> Option<NodeIdentity> {
    let header: Header<NodeIdentity> = PostcardCodec.decode_header(bytes).ok()?;
    Some(header.src)
}

#[cfg(test)]
mod tests;
