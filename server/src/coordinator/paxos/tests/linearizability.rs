//! A checker of linearizability for one register with compare-and-set: Wing and Gong's search with Lowe's memory of
//! states.
//!
//! Operations with an unknown outcome may take effect at any time after they began, or never.

use std::collections::BTreeSet;

/// An operation on the register and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read {
        seen: u64,
    },
    /// Set to `new` where the value was `expected`.
    Swapped {
        expected: u64,
        new: u64,
    },
    /// The value was not `expected`, but `seen`.
    Refused {
        expected: u64,
        seen: u64,
    },
    /// The outcome is unknown.
    MaybeSwapped {
        expected: u64,
        new: u64,
    },
}

/// An operation with the times at which it began and ended (`None`: never).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub call: Call,
    pub began: u64,
    pub ended: Option<u64>,
}

/// Whether some order of the operations that respects time explains all outcomes, starting with the value 0.
pub fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= 192, "the set of completed operations has three words");
    let mut visited: BTreeSet<([u64; 3], u64)> = BTreeSet::new();
    let mut stack: Vec<([u64; 3], u64)> = vec![([0; 3], 0)];
    let has = |done: &[u64; 3], index: usize| done[index / 64] >> (index % 64) & 1 == 1;
    while let Some((done, value)) = stack.pop() {
        if !visited.insert((done, value)) {
            continue;
        }
        let open = || history.iter().enumerate().filter(|(index, _)| !has(&done, *index));
        // The next operation must begin before the first of the others ended.
        let Some(first_end) = open().filter_map(|(_, operation)| operation.ended).min() else {
            return true;
        };
        for (index, operation) in open() {
            if operation.began > first_end {
                continue;
            }
            let next = match operation.call {
                Call::Read { seen } if seen == value => value,
                Call::Refused { expected, seen } if seen == value && expected != value => value,
                Call::Swapped { expected, new } | Call::MaybeSwapped { expected, new }
                    if expected == value =>
                {
                    new
                }
                _ => continue,
            };
            let mut done = done;
            done[index / 64] |= 1 << (index % 64);
            stack.push((done, next));
        }
    }
    false
}

#[test]
fn it_tells_histories_apart() {
    let done = |call, began, ended| Operation { call, began, ended: Some(ended) };
    let swap = |expected, new| Call::Swapped { expected, new };
    let read = |seen| Call::Read { seen };
    assert!(is_linearizable(&[done(swap(0, 1), 0, 5), done(read(0), 1, 2), done(read(1), 3, 4)]));
    assert!(!is_linearizable(&[done(swap(0, 1), 0, 5), done(read(1), 1, 2), done(read(0), 3, 4)]));
    assert!(!is_linearizable(&[done(swap(0, 1), 0, 1), done(read(0), 2, 3)]));
    assert!(!is_linearizable(&[done(swap(0, 1), 0, 9), done(swap(0, 2), 0, 9)]));
    let lost = Operation { call: Call::MaybeSwapped { expected: 0, new: 1 }, began: 0, ended: None };
    assert!(is_linearizable(&[lost, done(read(0), 1, 2), done(read(1), 3, 4)]));
    assert!(!is_linearizable(&[lost, done(read(1), 1, 2), done(read(0), 3, 4)]));
    let refused = Call::Refused { expected: 7, seen: 0 };
    assert!(is_linearizable(&[done(refused, 0, 1)]));
    assert!(!is_linearizable(&[done(Call::Refused { expected: 0, seen: 0 }, 0, 1)]));
}
