//! The numbers of entries in their groups: those of a group in one stream of a log are counted on.

use std::collections::BTreeMap;

use helenus_query::error::{RequestError, Result};

/// The numbers of the entries of a request. `Name`: that of a log and a stream.
#[derive(Debug)]
pub struct Numbers<Name> {
    /// What was numbered, and what is left, where the mutations of a request are one group.
    shared: Option<BTreeMap<Name, (usize, usize)>>,
}

impl<Name: Ord> Numbers<Name> {
    /// Each mutation is a group. It has one list of entries in each log.
    pub fn of_each() -> Self {
        Self { shared: None }
    }

    /// All mutations are one group. `lists`: the lengths of their lists of entries.
    pub fn shared(lists: impl Iterator<Item = (Name, usize)>) -> Self {
        let mut shared: BTreeMap<Name, (usize, usize)> = BTreeMap::new();
        for (name, count) in lists {
            shared.entry(name).or_default().1 += count;
        }
        Self { shared: Some(shared) }
    }

    /// The number of the first entry of the next list, and whether the last one is the last of its group.
    pub fn next(&mut self, name: &Name, count: usize) -> Result<(i32, bool)> {
        let too_many = |_| RequestError::invalid("A request makes too many entries of a change feed");
        let mut alone = (0, count);
        let of_group = self.shared.as_mut().and_then(|shared| shared.get_mut(name));
        let (numbered, left) = of_group.unwrap_or(&mut alone);
        let first = *numbered;
        *numbered += count;
        *left -= count;
        i32::try_from(*numbered).map_err(too_many)?;
        Ok((i32::try_from(first).map_err(too_many)?, *left == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_group_are_counted_on_in_each_stream() {
        let mut numbers = Numbers::shared([("a", 2), ("b", 1), ("a", 3)].into_iter());
        let mut next = |name, count| numbers.next(&name, count).unwrap();
        assert_eq!((next("a", 2), next("b", 1), next("a", 3)), ((0, false), (0, true), (2, true)));
        let mut numbers = Numbers::of_each();
        assert_eq!((numbers.next(&"a", 2).unwrap(), numbers.next(&"a", 3).unwrap()), ((0, true), (0, true)));
    }

    #[test]
    fn more_entries_than_there_are_numbers_are_refused() {
        assert!(Numbers::of_each().next(&"a", i32::MAX as usize).is_ok());
        assert!(Numbers::of_each().next(&"a", i32::MAX as usize + 1).is_err());
    }
}
