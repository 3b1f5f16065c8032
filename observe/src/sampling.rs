//! Which requests are counted where counting all of them would cost too much, and for how many each stands.
//!
//! Invariant: the first requests of a window are all counted. After [`EXACT_REQUESTS`] some are, by chance, each for [`SAMPLED_ONE_IN`]
//! requests: so most requests take a countdown, and sums are right on the average.

/// Requests of a window that are all counted.
pub const EXACT_REQUESTS: u32 = 1_024;
/// Behind these one in as many is counted.
pub const SAMPLED_ONE_IN: u32 = 16;

/// The choice of the requests that are counted.
#[derive(Debug)]
pub struct Sampling {
    exact_left: u32,
    /// Requests until the next one that is counted.
    pause: u32,
    random: u64,
}

impl Sampling {
    /// `seed`: not 0.
    pub fn new(seed: u64) -> Self {
        Self { exact_left: EXACT_REQUESTS, pause: 0, random: seed }
    }

    /// For how many requests this one is counted. 0: it is not.
    #[inline]
    pub fn take(&mut self) -> u64 {
        if self.exact_left > 0 {
            self.exact_left -= 1;
            return 1;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.pause = self.next_pause();
        u64::from(SAMPLED_ONE_IN)
    }

    /// Between 0 and twice the average, so that no rhythm of the requests escapes.
    fn next_pause(&mut self) -> u32 {
        // Xorshift (Marsaglia 2003). The state is never 0.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32 % (2 * SAMPLED_ONE_IN - 1)
    }

    pub fn begin_window(&mut self) {
        self.exact_left = EXACT_REQUESTS;
    }
}
