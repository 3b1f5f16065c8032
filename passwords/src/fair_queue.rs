//! A queue in which many items of one source do not delay those of another.
//!
//! Invariants:
//! * Sources with items take turns.
//! * The number of items is bounded. In a full queue a source with few items takes the place of the one with most.

use std::collections::VecDeque;

use hashbrown::HashMap;
use helenus_tls::source::Source;

/// A queue of items by their sources.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// Not empty, each.
    by_source: HashMap<Source, VecDeque<T>>,
    /// The sources with items; the first one is next.
    turns: VecDeque<Source>,
    length: usize,
    length_max: usize,
}

/// What became of an item that was added.
#[derive(Debug, PartialEq, Eq)]
pub enum Added<T> {
    Queued,
    /// Another item has lost its place.
    Instead(T),
    /// There is no room.
    Refused(T),
}

impl<T> FairQueue<T> {
    pub fn new(length_max: usize) -> Self {
        Self { by_source: HashMap::new(), turns: VecDeque::new(), length: 0, length_max }
    }

    pub fn add(&mut self, source: Source, item: T) -> Added<T> {
        let mut displaced = None;
        if self.length >= self.length_max {
            let own = self.by_source.get(&source).map_or(0, VecDeque::len);
            let longest = self.by_source.iter().max_by_key(|(_, items)| items.len());
            let Some((longest, _)) = longest.filter(|(_, items)| items.len() > own + 1) else {
                return Added::Refused(item);
            };
            displaced = self.take(*longest, VecDeque::pop_back);
        }
        let items = self.by_source.entry(source).or_default();
        if items.is_empty() {
            self.turns.push_back(source);
        }
        items.push_back(item);
        self.length += 1;
        displaced.map_or(Added::Queued, Added::Instead)
    }

    /// The next item.
    pub fn next(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let item = self.take(source, VecDeque::pop_front);
        if self.by_source.contains_key(&source) {
            self.turns.push_back(source);
        }
        item
    }

    fn take(&mut self, source: Source, take: fn(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let items = self.by_source.get_mut(&source)?;
        let item = take(items);
        if items.is_empty() {
            self.by_source.remove(&source);
            self.turns.retain(|waiting| *waiting != source);
        }
        self.length -= usize::from(item.is_some());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> Source {
        Source::of(std::net::IpAddr::from([10, 0, 0, number]))
    }

    #[test]
    fn sources_take_turns() {
        let mut queue = FairQueue::new(100);
        for item in ["a1", "a2", "a3"] {
            assert_eq!(queue.add(source(1), item), Added::Queued);
        }
        queue.add(source(2), "b1");
        let taken: Vec<&str> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(taken, ["a1", "b1", "a2", "a3"]);
        assert!(queue.turns.is_empty() && queue.by_source.is_empty() && queue.length == 0);
    }

    #[test]
    fn a_full_queue_has_room_for_a_source_with_few_items() {
        let mut queue = FairQueue::new(4);
        for item in 1..=4 {
            assert_eq!(queue.add(source(1), item), Added::Queued);
        }
        assert_eq!(queue.add(source(1), 5), Added::Refused(5));
        assert_eq!(queue.add(source(2), 6), Added::Instead(4));
        assert_eq!(queue.add(source(2), 7), Added::Instead(3));
        // Both have two.
        assert_eq!(queue.add(source(2), 8), Added::Refused(8));
        let taken: Vec<i32> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(taken, [1, 6, 2, 7]);
    }
}
