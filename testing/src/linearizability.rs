//! Checks whether a history of operations on one register is linearizable: Wing and Gong's search with Lowe's memory
//! of configurations.
//!
//! An operation without an answer may take effect at any time after it began, or never.

use std::collections::BTreeSet;

/// A value of the register; `None`: no row.
pub type Value = Option<i64>;

/// An operation with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Set to `new` if the value is `expected`. `applied` is the answer, and `seen` the value that a negative answer
    /// shows.
    CompareAndSet { expected: Value, new: Value, applied: Option<bool>, seen: Option<Value> },
    /// `None`: no answer.
    Read { seen: Option<Value> },
}

/// An operation and the times of its start and of its answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub operation: Operation,
    pub begun: u64,
    /// `None`: no answer.
    pub ended: Option<u64>,
}

impl Operation {
    /// Set to `new` if the value is `expected`, with the answer.
    pub fn set(expected: i64, new: i64, applied: Option<bool>) -> Self {
        Self::CompareAndSet { expected: Some(expected), new: Some(new), applied, seen: None }
    }

    /// The value after the operation, if it can take place at this value.
    fn apply(&self, value: Value) -> Option<Value> {
        match *self {
            Self::Read { seen } => (seen.is_none_or(|seen| seen == value)).then_some(value),
            Self::CompareAndSet { expected, new, applied, seen } => {
                let matches = value == expected;
                match applied {
                    Some(true) => matches.then_some(new),
                    Some(false) => (!matches && seen.is_none_or(|seen| seen == value)).then_some(value),
                    None => Some(if matches { new } else { value }),
                }
            }
        }
    }
}

/// A set of calls, by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Done(Vec<u64>);

impl Done {
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn with(&self, index: usize) -> Self {
        let mut more = self.clone();
        more.0[index / 64] |= 1 << (index % 64);
        more
    }
}

/// The result of the search for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Linearizable,
    NotLinearizable,
    /// The search was abandoned.
    Unknown,
}

/// Configurations after which the search is abandoned.
const CONFIGURATIONS_MAX: usize = 400_000;

/// Whether some order of the calls, each between its start and its end, explains all answers. The register begins
/// with `initial`.
pub fn judge(calls: &[Call], initial: Value) -> Judgement {
    // Reads without an answer show nothing.
    let calls: Vec<Call> = calls
        .iter()
        .copied()
        .filter(|call| !matches!(call.operation, Operation::Read { seen: None }))
        .collect();
    let answered = calls.iter().filter(|call| call.ended.is_some()).count();
    let none = Done(vec![0; calls.len().div_ceil(64)]);
    let mut seen: BTreeSet<(Done, Value)> = BTreeSet::new();
    let mut open = vec![(none, initial, 0_usize)];
    while let Some((done, value, answered_done)) = open.pop() {
        if answered_done == answered {
            return Judgement::Linearizable;
        }
        if seen.len() > CONFIGURATIONS_MAX {
            return Judgement::Unknown;
        }
        // A call that begins after some pending call has ended cannot come before that call.
        let horizon = calls
            .iter()
            .enumerate()
            .filter(|(index, _)| !done.contains(*index))
            .filter_map(|(_, call)| call.ended)
            .min()
            .unwrap_or(u64::MAX);
        for (index, call) in calls.iter().enumerate() {
            if done.contains(index) || call.begun > horizon {
                continue;
            }
            let Some(after) = call.operation.apply(value) else { continue };
            if call.ended.is_none() && after == value {
                // Without an effect the call may be left out.
                continue;
            }
            let next = done.with(index);
            if seen.insert((next.clone(), after)) {
                open.push((next, after, answered_done + usize::from(call.ended.is_some())));
            }
        }
    }
    Judgement::NotLinearizable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_linearizable(calls: &[Call], initial: Value) -> bool {
        let judgement = judge(calls, initial);
        assert_ne!(judgement, Judgement::Unknown);
        judgement == Judgement::Linearizable
    }

    fn set(expected: Value, new: i64, applied: Option<bool>, begun: u64, ended: Option<u64>) -> Call {
        let operation = Operation::CompareAndSet { expected, new: Some(new), applied, seen: None };
        Call { operation, begun, ended }
    }

    fn read(seen: Value, begun: u64, ended: u64) -> Call {
        Call { operation: Operation::Read { seen: Some(seen) }, begun, ended: Some(ended) }
    }

    #[test]
    fn one_after_the_other_is_linearizable() {
        let calls = [
            set(None, 1, Some(true), 0, Some(1)),
            set(Some(1), 2, Some(true), 2, Some(3)),
            read(Some(2), 4, 5),
        ];
        assert!(is_linearizable(&calls, None));
    }

    #[test]
    fn two_winners_of_one_value_are_not() {
        let calls = [set(None, 1, Some(true), 0, Some(3)), set(None, 2, Some(true), 1, Some(4))];
        assert!(!is_linearizable(&calls, None));
    }

    #[test]
    fn reads_do_not_go_back() {
        let calls = [set(None, 1, Some(true), 0, Some(9)), read(Some(1), 1, 2), read(None, 3, 4)];
        assert!(!is_linearizable(&calls, None));
    }

    #[test]
    fn an_unanswered_call_may_take_effect_late_or_never() {
        let unknown = set(None, 1, None, 0, None);
        assert!(is_linearizable(&[unknown, read(None, 1, 2), read(Some(1), 3, 4)], None));
        assert!(is_linearizable(&[unknown, read(None, 1, 2), read(None, 3, 4)], None));
        assert!(!is_linearizable(&[unknown, read(Some(1), 1, 2), read(None, 3, 4)], None));
    }

    #[test]
    fn a_refusal_shows_the_value() {
        let refused = Call {
            operation: Operation::CompareAndSet {
                expected: None,
                new: Some(5),
                applied: Some(false),
                seen: Some(Some(1)),
            },
            begun: 2,
            ended: Some(3),
        };
        assert!(is_linearizable(&[set(None, 1, Some(true), 0, Some(1)), refused], None));
        assert!(!is_linearizable(&[refused], None));
    }

    #[test]
    fn it_tells_histories_of_swaps_apart() {
        let swap = |expected, new, begun, ended| set(Some(expected), new, Some(true), begun, Some(ended));
        let read = |seen, begun, ended| read(Some(seen), begun, ended);
        let is_linearizable = |calls: &[Call]| is_linearizable(calls, Some(0));
        assert!(is_linearizable(&[swap(0, 1, 0, 5), read(0, 1, 2), read(1, 3, 4)]));
        assert!(!is_linearizable(&[swap(0, 1, 0, 5), read(1, 1, 2), read(0, 3, 4)]));
        assert!(!is_linearizable(&[swap(0, 1, 0, 1), read(0, 2, 3)]));
        assert!(!is_linearizable(&[swap(0, 1, 0, 9), swap(0, 2, 0, 9)]));
        let lost = set(Some(0), 1, None, 0, None);
        assert!(is_linearizable(&[lost, read(0, 1, 2), read(1, 3, 4)]));
        assert!(!is_linearizable(&[lost, read(1, 1, 2), read(0, 3, 4)]));
        let refused = |expected| Call {
            operation: Operation::CompareAndSet {
                expected: Some(expected),
                new: Some(9),
                applied: Some(false),
                seen: Some(Some(0)),
            },
            begun: 0,
            ended: Some(1),
        };
        assert!(is_linearizable(&[refused(7)]));
        assert!(!is_linearizable(&[refused(0)]));
    }
}
