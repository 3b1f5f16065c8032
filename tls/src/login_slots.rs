//! Places for connections that have not logged in.
//!
//! Invariants:
//! * There are never more such connections than places: they cannot take the connections of those who log in. A connection has its place from
//!   its accept on, so that one whose TLS handshake does not end has one too.
//! * For one more, the oldest connection of the source with most of them gives way. So a client that logs in at once finds a place,
//!   whatever others hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use tokio::sync::oneshot;

use crate::source::Source;

/// The places that are taken.
#[derive(Debug, Default)]
pub struct LoginSlots {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Not empty, each; oldest first.
    by_source: HashMap<Source, BTreeMap<u64, oneshot::Sender<()>>>,
    taken: usize,
    next_number: u64,
}

/// The place of a connection until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<LoginSlots>,
    source: Source,
    number: u64,
    given_up: oneshot::Receiver<()>,
}

impl LoginSlots {
    /// Takes one of `max` places.
    pub fn enter(self: &Arc<Self>, source: Source, max: usize) -> Slot {
        let (give_up, given_up) = oneshot::channel();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.taken >= max.max(1) {
            state.evict();
        }
        state.next_number += 1;
        let number = state.next_number;
        state.by_source.entry(source).or_default().insert(number, give_up);
        state.taken += 1;
        drop(state);
        Slot { slots: self.clone(), source, number, given_up }
    }
}

impl State {
    /// Takes the place of the oldest connection of the source with most.
    fn evict(&mut self) {
        let longest = self.by_source.iter().max_by_key(|(_, slots)| slots.len());
        let oldest = longest.and_then(|(source, slots)| Some((*source, *slots.first_key_value()?.0)));
        let Some((source, number)) = oldest else { unreachable!("places are taken by connections") };
        if let Some(give_up) = self.remove(source, number) {
            // It may have ended.
            let _ = give_up.send(());
        }
    }

    fn remove(&mut self, source: Source, number: u64) -> Option<oneshot::Sender<()>> {
        let slots = self.by_source.get_mut(&source)?;
        let removed = slots.remove(&number);
        if slots.is_empty() {
            self.by_source.remove(&source);
        }
        self.taken -= usize::from(removed.is_some());
        removed
    }
}

/// As [`Slot::given_up`]; never without a place.
pub async fn given_up(slot: &mut Option<Slot>) {
    match slot {
        Some(slot) => slot.given_up().await,
        None => std::future::pending().await,
    }
}

impl Slot {
    /// Resolves when another connection has taken the place.
    pub async fn given_up(&mut self) {
        if (&mut self.given_up).await.is_err() {
            // The sender is there as long as the place is this one's.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn source(number: u8) -> Source {
        Source::of(std::net::IpAddr::from([10, 0, 0, number]))
    }

    fn has_given_up(slot: &mut Slot) -> bool {
        slot.given_up().now_or_never().is_some()
    }

    #[test]
    fn the_source_with_most_connections_gives_way() {
        let slots = Arc::new(LoginSlots::default());
        let mut many: Vec<Slot> = (0..3).map(|_| slots.enter(source(1), 4)).collect();
        let mut other = slots.enter(source(2), 4);
        assert!(many.iter_mut().all(|slot| !has_given_up(slot)));
        let mut late = slots.enter(source(2), 4);
        assert!(has_given_up(&mut many[0]));
        assert!(!has_given_up(&mut many[1]) && !has_given_up(&mut other) && !has_given_up(&mut late));
        assert_eq!(slots.state.lock().unwrap().taken, 4);
    }

    #[test]
    fn a_place_is_free_after_its_connection() {
        let slots = Arc::new(LoginSlots::default());
        let mut first = slots.enter(source(1), 1);
        let mut second = slots.enter(source(1), 1);
        assert!(has_given_up(&mut first));
        drop(first);
        assert!(!has_given_up(&mut second));
        drop(second);
        let state = slots.state.lock().unwrap();
        assert!(state.taken == 0 && state.by_source.is_empty());
    }
}
