//! Recall and time of searches in 100,000 clustered vectors of 128 dimensions, with filters that let a share of the rows pass.
//!
//! `cargo run --release -p helenus-vectors --example recall`

#![allow(clippy::expect_used, reason = "an example fails by panicking")]

use std::collections::HashSet;
use std::time::Instant;

use helenus_vectors::quantised::{Quantised, quantise};
use helenus_vectors::{Clusters, Nearest, Sample, Similarity, Target, lists_to_read};

const VECTORS: usize = 100_000;
const DIMENSION: usize = 128;
const PLACES: usize = 1_000;
const SEARCHES: usize = 200;
const WANTED: usize = 10;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// About normally distributed.
    fn component(&mut self) -> f32 {
        (0..4).map(|_| self.below(1 << 20) as f32 / (1 << 20) as f32 - 0.5).sum()
    }
}

struct Set {
    vectors: Vec<Vec<f32>>,
    clusters: Clusters,
    lists: Vec<Vec<(usize, Vec<u8>)>>,
}

fn main() {
    let mut random = Random(7);
    let places: Vec<Vec<f32>> =
        (0..PLACES).map(|_| (0..DIMENSION).map(|_| random.component()).collect()).collect();
    let mut around = |width: f32| -> Vec<f32> {
        let place = &places[random.below(PLACES as u64) as usize];
        place.iter().map(|at| at + width * random.component()).collect()
    };
    let vectors: Vec<Vec<f32>> = (0..VECTORS).map(|_| around(0.7)).collect();
    let targets: Vec<Vec<f32>> = (0..SEARCHES).map(|_| around(0.7)).collect();
    let begun = Instant::now();
    let mut sample = Sample::new(Similarity::Cosine, DIMENSION);
    for vector in &vectors {
        sample.offer(vector);
    }
    let clusters = sample.into_clusters();
    println!("{} lists after {:.1} s", clusters.len(), begun.elapsed().as_secs_f64());
    let mut lists = vec![Vec::new(); clusters.len()];
    for (number, vector) in vectors.iter().enumerate() {
        let (list, difference) = clusters.place_of(vector).expect("a sample that is not empty has lists");
        let mut bytes = Vec::new();
        quantise(&difference, &mut bytes);
        lists[list].push((number, bytes));
    }
    println!("built after {:.1} s", begun.elapsed().as_secs_f64());
    let set = Set { vectors, clusters, lists };
    for percent in [1, 10, 50, 100] {
        let passes = |number: usize| {
            (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < percent * (1 << 32) / 100
        };
        let (mut found, mut of, mut seconds) = (0, 0, 0.0);
        for vector in &targets {
            let begun = Instant::now();
            let answer: HashSet<usize> = search(&set, vector, &passes).into_iter().collect();
            seconds += begun.elapsed().as_secs_f64();
            let mut exact = Nearest::new(WANTED);
            for (number, candidate) in set.vectors.iter().enumerate().filter(|(number, _)| passes(*number)) {
                exact.offer(Similarity::Cosine.of(vector, candidate).unwrap_or(0.0), number);
            }
            for (_, number) in exact.into_sorted() {
                of += 1;
                found += usize::from(answer.contains(&number));
            }
        }
        let millis = seconds * 1e3 / SEARCHES as f64;
        println!("{percent} % of the rows: recall@{WANTED} {:.4}, {millis:.2} ms", found as f64 / of as f64);
    }
}

/// A search in rounds, each with more lists and more candidates than the one before, until enough of them pass the filter.
fn search(set: &Set, vector: &[f32], passes: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let target = Target::new(Similarity::Cosine, vector.to_vec());
    let mut wanted_lists = lists_to_read(set.clusters.len(), false);
    let mut wanted = 2 * WANTED + 16;
    loop {
        let mut order: Vec<(f32, usize, &[f32])> = Vec::new();
        for (list, centroid) in set.clusters.centroids().enumerate() {
            order.push((target.similarity_to_centroid(centroid), list, centroid));
        }
        order.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
        order.truncate(wanted_lists);
        let mut candidates = Nearest::new(wanted);
        for (_, list, centroid) in order {
            let target = target.in_list(centroid.to_vec());
            for (number, bytes) in &set.lists[list] {
                let Some(quantised) = Quantised::parse(bytes, DIMENSION) else { continue };
                candidates.offer(target.estimate(&quantised), *number);
            }
        }
        let is_all = wanted_lists >= set.clusters.len() && !candidates.has_left_out();
        let mut best = Nearest::new(WANTED);
        for (_, number) in candidates.into_sorted().into_iter().filter(|(_, number)| passes(*number)) {
            best.offer(Similarity::Cosine.of(vector, &set.vectors[number]).unwrap_or(0.0), number);
        }
        if best.len() >= WANTED || is_all {
            return best.into_sorted().into_iter().map(|(_, number)| number).collect();
        }
        wanted *= 4;
        wanted_lists *= 2;
    }
}
