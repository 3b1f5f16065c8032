//! Budgets that the shards of a node lend each other: memory for memtables and blocks, room for the commit log.
//!
//! A budget is halved. One half is divided evenly: a shard may always use its part. The other half is a pool: a shard may borrow at most
//! [`FREE_TIMES`] times of what is free there. So a shard that works alone gets most of the pool, those that work together share it
//! evenly, and whoever begins to work finds some of it free, as in the dynamic thresholds of switches with shared memory (Choudhury and
//! Hahne 1998).
//!
//! Invariants:
//! * Shards that stay within their bounds use no more than the budget together. One may exceed its bound by what it adds at a time.
//! * What a shard has borrowed returns to the pool with its share, at the latest.
//! * A node with one shard has no pool. Its bound is the budget.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shard may borrow this many times what is free. More favours a shard that works alone, less one that begins to work.
const FREE_TIMES: u64 = 4;
/// Loans are counted in steps of this part of the pool, so that a small change touches no memory that shards share.
const STEPS: u64 = 1 << 12;

/// What of a budget's pool is lent. The shards of a node share one for each budget.
#[derive(Debug, Clone, Default)]
pub struct Lent(Arc<AtomicU64>);

impl Lent {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A shard's share of a budget.
#[derive(Debug)]
pub struct LendingShare {
    lent: Lent,
    own_bytes: u64,
    pool_bytes: u64,
    step_bytes: u64,
    borrowed_bytes: Cell<u64>,
}

impl LendingShare {
    /// A share that uses nothing yet. `budget_bytes`: the budget of all shards together. `shards`: their number, at least 1.
    pub fn new(budget_bytes: u64, shards: usize, lent: Lent) -> Self {
        let pool_bytes = if shards > 1 { budget_bytes / 2 } else { 0 };
        let own_bytes = (budget_bytes - pool_bytes) / shards as u64;
        let step_bytes = (pool_bytes / STEPS).max(1);
        Self { lent, own_bytes, pool_bytes, step_bytes, borrowed_bytes: Cell::new(0) }
    }

    /// Whether there are other shards to borrow of.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.pool_bytes > 0
    }

    /// The most bytes that the shard may use now. It changes as other shards borrow and give back.
    #[inline]
    pub fn bound_bytes(&self) -> u64 {
        if !self.is_shared() {
            return self.own_bytes;
        }
        let free = self.pool_bytes.saturating_sub(self.lent.bytes());
        self.own_bytes + self.pool_bytes.min(free.saturating_mul(FREE_TIMES))
    }

    /// Says how many bytes the shard uses: what is more than its own part is borrowed.
    #[inline]
    pub fn use_bytes(&self, used_bytes: u64) {
        if !self.is_shared() {
            return;
        }
        let borrowed = used_bytes.saturating_sub(self.own_bytes).next_multiple_of(self.step_bytes);
        let before = self.borrowed_bytes.replace(borrowed);
        if borrowed != before {
            self.lent.0.fetch_add(borrowed.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for LendingShare {
    fn drop(&mut self) {
        self.use_bytes(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 256 << 20;

    fn shares(count: usize) -> (Lent, Vec<LendingShare>) {
        let lent = Lent::default();
        let shares = (0..count).map(|_| LendingShare::new(BUDGET, count, lent.clone())).collect();
        (lent, shares)
    }

    /// Takes as much as the share allows, a little at a time, and returns it.
    fn take_all(share: &LendingShare, mut used: u64) -> u64 {
        while used < share.bound_bytes() {
            used += 1 << 10;
            share.use_bytes(used);
        }
        used
    }

    #[test]
    fn a_shard_alone_on_its_node_has_the_whole_budget() {
        let (lent, shares) = shares(1);
        assert_eq!(shares[0].bound_bytes(), BUDGET);
        shares[0].use_bytes(BUDGET);
        assert_eq!((shares[0].bound_bytes(), lent.bytes()), (BUDGET, 0));
    }

    #[test]
    fn a_shard_that_works_alone_borrows_most_of_the_pool() {
        for count in [2, 8, 64] {
            let (_, shares) = shares(count);
            let used = take_all(&shares[0], 0);
            assert!(used > BUDGET * 2 / 5, "{count} shards: {used}");
            // The others have their own parts, and something of the pool.
            for idle in &shares[1..] {
                assert!(idle.bound_bytes() > BUDGET / 2 / count as u64);
            }
        }
    }

    #[test]
    fn shards_that_work_together_share_the_budget_evenly() {
        for count in [2, 3, 16, 64] {
            let (_, shares) = shares(count);
            let mut used = vec![0; count];
            let mut has_grown = true;
            while has_grown {
                has_grown = false;
                for (share, used) in shares.iter().zip(&mut used) {
                    if *used < share.bound_bytes() {
                        (*used, has_grown) = (*used + (1 << 10), true);
                        share.use_bytes(*used);
                    }
                }
            }
            let together: u64 = used.iter().sum();
            assert!(together > BUDGET * 9 / 10 && together <= BUDGET, "{count} shards use {together}");
            let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
            assert!(most - least <= BUDGET / 100, "{count} shards: from {least} to {most}");
        }
    }

    #[test]
    fn a_shard_that_begins_late_has_its_own_part_and_the_budget_is_kept() {
        for count in [2, 16, 64] {
            let (_, shares) = shares(count);
            let used: Vec<u64> = shares.iter().map(|share| take_all(share, 0)).collect();
            assert!(
                used.iter().sum::<u64>() <= BUDGET + count as u64 * (1 << 10),
                "{count} shards: {used:?}"
            );
            assert!(used.iter().all(|used| *used >= BUDGET / 2 / count as u64), "{count} shards: {used:?}");
        }
    }

    #[test]
    fn what_is_borrowed_returns_with_a_flush_and_with_the_share() {
        let (lent, mut shares) = shares(4);
        take_all(&shares[0], 0);
        take_all(&shares[1], 0);
        assert!(lent.bytes() > 0);
        shares[0].use_bytes(0);
        shares.pop();
        let before = lent.bytes();
        shares.remove(1);
        assert!(before > 0);
        assert_eq!(lent.bytes(), 0);
    }

    #[test]
    fn a_budget_of_nothing_lends_nothing() {
        let share = LendingShare::new(0, 4, Lent::default());
        share.use_bytes(100);
        assert_eq!(share.bound_bytes(), 0);
    }
}
