//! Latencies of one kind of request: a closed loop with one request in flight, after the data is loaded.
//!
//! The clock runs only while the request does: choosing what to ask and checking the answer are outside. The time
//! is what an application sees: driver, network and server, with all the requests a model needs for one answer.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// When to stop measuring one kind of request.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub requests_max: u64,
    /// Sum of the latencies after which no further request is started.
    pub busy_max: Duration,
}

/// The response to a request, with its counts of rows and pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedResponse<T> {
    pub value: T,
    /// Rows of the answer as the user sees it; rows written for a write.
    pub rows: u64,
    /// Pages read from the server, over all the statements this request took; 0 when nothing was read.
    pub pages: u64,
}

impl<T> CountedResponse<T> {
    /// Changes the value, keeps the counts.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> CountedResponse<U> {
        CountedResponse { value: change(self.value), rows: self.rows, pages: self.pages }
    }
}

impl CountedResponse<()> {
    /// A write of `rows` rows that read nothing first.
    pub fn written(rows: u64) -> Self {
        Self { value: (), rows, pages: 0 }
    }
}

/// The latencies of one kind of request.
#[derive(Debug, Clone)]
pub struct Measurement {
    budget: Budget,
    histogram_us: Histogram<u64>,
    busy: Duration,
    rows: u64,
    pages: u64,
    has_charge: bool,
    charge: Option<u64>,
}

impl Measurement {
    const LATENCY_US_MAX: u64 = 3_600_000_000;

    /// Nothing measured yet.
    pub fn new(budget: Budget) -> Self {
        let histogram_us = Histogram::new_with_bounds(1, Self::LATENCY_US_MAX, 3).unwrap_or_else(|_| {
            unreachable!("bounds and precision are constants that the histogram accepts")
        });
        Self {
            budget,
            histogram_us,
            busy: Duration::ZERO,
            rows: 0,
            pages: 0,
            has_charge: false,
            charge: None,
        }
    }

    /// Whether the charge of one request was noted.
    pub fn has_charge(&self) -> bool {
        self.has_charge
    }

    /// Notes what one request is charged, which was not measured; `None`: the server charges nothing.
    pub fn note_charge(&mut self, charge: Option<u64>) {
        self.has_charge = true;
        self.charge = charge;
    }

    /// What one request is charged, if that is known.
    pub fn charge(&self) -> Option<u64> {
        self.charge
    }

    /// Whether another request should be measured; always true for the first.
    pub fn wants_more(&self) -> bool {
        self.count() == 0 || (self.count() < self.budget.requests_max && self.busy < self.budget.busy_max)
    }

    /// Number of requests measured; also the number of the next one.
    pub fn count(&self) -> u64 {
        self.histogram_us.len()
    }

    /// Runs one request under the clock. A failed request is not counted.
    pub async fn time<T, E>(
        &mut self,
        request: impl Future<Output = Result<CountedResponse<T>, E>>,
    ) -> Result<T, E> {
        let started = Instant::now();
        let answer = request.await?;
        let latency = started.elapsed();
        self.busy += latency;
        self.histogram_us.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
        self.rows += answer.rows;
        self.pages += answer.pages;
        Ok(answer.value)
    }

    /// The latency that `quantile` (0 to 1) of the requests did not exceed.
    pub fn latency(&self, quantile: f64) -> Duration {
        Duration::from_micros(self.histogram_us.value_at_quantile(quantile))
    }

    /// Rows an answer, on average.
    pub fn rows_mean(&self) -> f64 {
        self.rows as f64 / self.count().max(1) as f64
    }

    /// Pages an answer, on average.
    pub fn pages_mean(&self) -> f64 {
        self.pages as f64 / self.count().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_request_is_measured_even_without_budget() {
        let mut measurement = Measurement::new(Budget { requests_max: 0, busy_max: Duration::ZERO });
        let mut asked = 0;
        while measurement.wants_more() {
            asked += 1;
            let answer = async { Ok::<_, std::io::Error>(CountedResponse { value: 7, rows: 3, pages: 2 }) };
            assert_eq!(measurement.time(answer).await.unwrap(), 7);
        }
        assert_eq!(asked, 1);
        assert!((measurement.rows_mean() - 3.0).abs() < f64::EPSILON);
        assert!((measurement.pages_mean() - 2.0).abs() < f64::EPSILON);
    }

    #[tokio::test]
    async fn a_failed_request_is_not_counted() {
        let mut measurement = Measurement::new(Budget { requests_max: 5, busy_max: Duration::from_secs(1) });
        let answer = async { Err::<CountedResponse<()>, _>("no") };
        assert_eq!(measurement.time(answer).await, Err("no"));
        assert_eq!(measurement.count(), 0);
    }
}
