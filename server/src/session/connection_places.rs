//! The places that a node has for connections of clients: in total, and for each address.
//!
//! Who finds no place learns why: its first request is answered with an error, and the connection ends. Drivers that would only see a
//! connection end try again at once.
//!
//! Invariant: at most `REFUSALS_MAX` connections beyond the limits are open, each for at most [`REFUSAL_MAX`]. More are closed at once.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use helenus_config::Config;

/// Most connections that wait to learn that there is no place for them.
const REFUSALS_MAX: usize = 64;
/// How long such a connection may take to ask.
pub const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// The places of a node.
#[derive(Debug, Default)]
pub struct ConnectionPlaces(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    refused: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The place of a connection. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<ConnectionPlaces>,
    address: IpAddr,
    refusal: Option<String>,
}

impl ConnectionPlaces {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Counts are right also after a panic of another thread.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a client of this address. `None`: the connection is to be closed at once.
    pub fn take(self: &Arc<Self>, config: &Config, address: IpAddr) -> Option<Place> {
        let mut taken = self.taken();
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        let refusal = if taken.total >= config.max_connections {
            Some(format!("The node has {} connections, the most that it allows", taken.total))
        } else if config.max_connections_per_address > 0 && of_address >= config.max_connections_per_address {
            Some(format!("There are {of_address} connections from {address}, the most that the node allows"))
        } else {
            None
        };
        if refusal.is_none() {
            taken.total += 1;
            *taken.by_address.entry(address).or_default() += 1;
        } else if taken.refused < REFUSALS_MAX {
            taken.refused += 1;
        } else {
            return None;
        }
        drop(taken);
        Some(Place { places: self.clone(), address, refusal })
    }
}

impl Place {
    /// Why the client is refused, if it is.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if self.refusal.is_some() {
            taken.refused -= 1;
            return;
        }
        taken.total -= 1;
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    #[test]
    fn places_are_counted_in_total_and_for_each_address() {
        let config = Config { max_connections: 3, max_connections_per_address: 2, ..Config::default() };
        let places = Arc::new(ConnectionPlaces::default());
        let take = |last| places.take(&config, address(last)).unwrap();
        let (first, second) = (take(1), take(1));
        assert_eq!((first.refusal(), second.refusal()), (None, None));
        let third = take(1);
        assert!(third.refusal().is_some_and(|why| why.contains("2 connections from 10.0.0.1")), "{third:?}");
        let other = take(2);
        assert_eq!(other.refusal(), None);
        let fourth = take(3);
        assert!(fourth.refusal().is_some_and(|why| why.contains("has 3 connections")), "{fourth:?}");
        drop(first);
        assert_eq!(take(3).refusal(), None);
        drop((second, third, other, fourth));
        let taken = places.taken();
        assert_eq!((taken.total, taken.refused, taken.by_address.len()), (0, 0, 0));
    }

    #[test]
    fn those_that_wait_for_a_refusal_are_bounded() {
        let config = Config { max_connections: 1, ..Config::default() };
        let places = Arc::new(ConnectionPlaces::default());
        let mut taken: Vec<_> =
            (0..=REFUSALS_MAX).map(|_| places.take(&config, address(1)).unwrap()).collect();
        assert!(places.take(&config, address(2)).is_none());
        taken.pop();
        assert!(places.take(&config, address(2)).is_some());
    }
}
