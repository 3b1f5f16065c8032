//! Dividing vectors into lists of similar ones.
//!
//! 1. A [`Sample`] of the vectors is taken: all of the first ones, and later ones in the place of earlier ones, so that each vector is in it with
//!    the same chance.
//! 2. The sample is divided into groups, and each group into lists, by a few rounds of k-means. Two levels cost far less than one.
//! 3. Each vector belongs to the list whose centroid is nearest, among those of the nearest groups.

use helenus_io::SplitMix64;

use crate::similarity::{Similarity, difference, square_distance};

/// The most bytes of a sample.
const SAMPLE_BYTES_MAX: usize = 32 << 20;
/// Vectors of a sample from which one centroid is computed.
const SAMPLES_PER_LIST: usize = 32;
/// With fewer there are fewer lists.
const SAMPLES_PER_LIST_MIN: usize = 8;
/// Fewer vectors are one list.
const DIVIDED_MIN: u64 = 512;
/// Groups of lists are made if there are more lists.
const UNGROUPED_LISTS_MAX: usize = 16;
const ROUNDS: usize = 8;
/// The share of the groups whose lists a vector is compared with, and their least number.
const GROUPS_TRIED_SHARE: usize = 8;
const GROUPS_TRIED_MIN: usize = 4;

const SEED: u64 = 0x6865_6c65_6e75_7321;

/// The lists that a search reads at first, of this many. `generous`: more, so that it misses fewer vectors.
pub fn lists_to_read(lists: usize, generous: bool) -> usize {
    let share = if generous { lists.div_ceil(4) } else { lists.div_ceil(8) };
    share.max(if generous { 48 } else { 32 }).min(lists)
}

/// The number of lists for this many vectors.
fn lists_for(vectors: u64, sampled: usize) -> usize {
    if vectors < DIVIDED_MIN {
        return 1;
    }
    let lists = (2 * vectors.isqrt()) as usize;
    lists.min(sampled / SAMPLES_PER_LIST_MIN).max(1)
}

/// A sample of vectors.
#[derive(Debug)]
pub struct Sample {
    similarity: Similarity,
    dimension: usize,
    /// The vectors, one behind the other.
    taken: Vec<f32>,
    vectors_max: usize,
    offered: u64,
    random: SplitMix64,
}

impl Sample {
    pub fn new(similarity: Similarity, dimension: usize) -> Self {
        let vectors_max = (SAMPLE_BYTES_MAX / (size_of::<f32>() * dimension.max(1))).max(1);
        Self::with_room(similarity, dimension, vectors_max)
    }

    fn with_room(similarity: Similarity, dimension: usize, vectors_max: usize) -> Self {
        let random = SplitMix64::new(SEED);
        Self { similarity, dimension, taken: Vec::new(), vectors_max, offered: 0, random }
    }

    /// Offers the next vector, which has the dimension of the sample.
    pub fn offer(&mut self, vector: &[f32]) {
        debug_assert_eq!(vector.len(), self.dimension, "the caller reads vectors of this dimension only");
        self.offered += 1;
        let place = if self.offered <= self.vectors_max as u64 {
            self.taken.extend_from_slice(vector);
            self.offered as usize - 1
        } else {
            let place = self.random.below(self.offered);
            if place >= self.vectors_max as u64 {
                return;
            }
            place as usize
        };
        let start = place * self.dimension;
        let taken = &mut self.taken[start..start + self.dimension];
        taken.copy_from_slice(vector);
        self.similarity.prepare(taken);
    }

    /// Divides the sample.
    pub fn into_clusters(self) -> Clusters {
        let Self { similarity, dimension, taken, offered, .. } = self;
        let all: Vec<&[f32]> = taken.chunks_exact(dimension.max(1)).collect();
        let lists = lists_for(offered, all.len());
        // Vectors at equal distances in the order of the table, so that each part of the table has its share.
        let stride = (all.len() / (lists * SAMPLES_PER_LIST)).max(1);
        let points: Vec<&[f32]> = all.into_iter().step_by(stride).collect();
        let mut clusters = Clusters { similarity, dimension, groups: Vec::new(), centroids: Vec::new() };
        let group_count = if lists <= UNGROUPED_LISTS_MAX { 1 } else { lists.isqrt() };
        let mut random = SplitMix64::new(SEED);
        for group in k_means(&points, dimension, group_count, &mut random) {
            let share = (lists * group.members.len()).div_ceil(points.len().max(1));
            let members: Vec<&[f32]> = group.members.iter().map(|number| points[*number]).collect();
            let first = clusters.len();
            for list in k_means(&members, dimension, share, &mut random) {
                clusters.centroids.extend_from_slice(&list.centroid);
            }
            clusters.groups.push(Group { centroid: group.centroid, first, end: clusters.len() });
        }
        clusters
    }
}

/// A group of lists.
#[derive(Debug, Clone)]
struct Group {
    centroid: Vec<f32>,
    first: usize,
    end: usize,
}

/// The lists of the vectors of a file.
#[derive(Debug, Clone)]
pub struct Clusters {
    similarity: Similarity,
    dimension: usize,
    groups: Vec<Group>,
    /// The centroids of the lists, one behind the other.
    centroids: Vec<f32>,
}

impl Clusters {
    /// The number of lists.
    pub fn len(&self) -> usize {
        self.centroids.len() / self.dimension.max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.centroids.is_empty()
    }

    /// The centroids of the lists, in their order.
    pub fn centroids(&self) -> impl Iterator<Item = &[f32]> {
        self.centroids.chunks_exact(self.dimension.max(1))
    }

    /// The list of a vector, and the vector's difference to its centroid. `None`: there are no lists, because the sample was empty.
    pub fn place_of(&self, vector: &[f32]) -> Option<(usize, Vec<f32>)> {
        let mut prepared = vector.to_vec();
        self.similarity.prepare(&mut prepared);
        let mut groups: Vec<(f32, &Group)> =
            self.groups.iter().map(|group| (square_distance(&prepared, &group.centroid), group)).collect();
        let tried = (groups.len() / GROUPS_TRIED_SHARE).max(GROUPS_TRIED_MIN);
        if groups.len() > tried {
            groups.select_nth_unstable_by(tried, |(a, _), (b, _)| a.total_cmp(b));
            groups.truncate(tried);
        }
        let lists = groups.iter().flat_map(|(_, group)| group.first..group.end);
        let distance = |list: usize| {
            let start = list * self.dimension;
            square_distance(&prepared, &self.centroids[start..start + self.dimension])
        };
        let nearest = lists.map(|list| (distance(list), list));
        let nearest = nearest.min_by(|(a, left), (b, right)| a.total_cmp(b).then(left.cmp(right)));
        let (_, list) = nearest?;
        let centroid = &self.centroids[list * self.dimension..(list + 1) * self.dimension];
        Some((list, difference(&prepared, centroid)))
    }
}

/// Points that are nearer to this centroid than to the others.
struct Cluster {
    centroid: Vec<f32>,
    members: Vec<usize>,
}

/// Divides points into at most `count` clusters. None is empty.
fn k_means(points: &[&[f32]], dimension: usize, count: usize, random: &mut SplitMix64) -> Vec<Cluster> {
    let count = count.clamp(1, points.len().max(1));
    let mut order: Vec<usize> = (0..points.len()).collect();
    for place in 0..count.min(points.len()) {
        let other = place + random.below((points.len() - place) as u64) as usize;
        order.swap(place, other);
    }
    let chosen = order.iter().take(count).filter_map(|number| points.get(*number));
    let mut clusters: Vec<Cluster> =
        chosen.map(|point| Cluster { centroid: point.to_vec(), members: Vec::new() }).collect();
    for round in 0..ROUNDS {
        for cluster in &mut clusters {
            cluster.members.clear();
        }
        for (number, point) in points.iter().enumerate() {
            let nearest = clusters
                .iter_mut()
                .map(|cluster| (square_distance(point, &cluster.centroid), cluster))
                .min_by(|(a, _), (b, _)| a.total_cmp(b));
            if let Some((_, cluster)) = nearest {
                cluster.members.push(number);
            }
        }
        clusters.retain(|cluster| !cluster.members.is_empty());
        if clusters.len() == 1 || round + 1 == ROUNDS {
            break;
        }
        for cluster in &mut clusters {
            cluster.centroid =
                mean(cluster.members.iter().filter_map(|number| points.get(*number)), dimension);
        }
    }
    for cluster in &mut clusters {
        cluster.centroid = mean(cluster.members.iter().filter_map(|number| points.get(*number)), dimension);
    }
    clusters
}

fn mean<'p>(points: impl Iterator<Item = &'p &'p [f32]>, dimension: usize) -> Vec<f32> {
    let (mut sums, mut count) = (vec![0.0_f64; dimension], 0.0_f64);
    for point in points {
        for (sum, component) in sums.iter_mut().zip(*point) {
            *sum += f64::from(*component);
        }
        count += 1.0;
    }
    sums.iter().map(|sum| (sum / count.max(1.0)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::nearest::Nearest;
    use crate::quantised::{Quantised, quantise};
    use crate::target::Target;

    /// Vectors that lie around a few places, as those of texts do.
    fn clustered(count: usize, dimension: usize) -> Vec<Vec<f32>> {
        let mut random = SplitMix64::new(7);
        let mut component = |width: f32| {
            let of_three: f32 =
                (0..3).map(|_| (random.next_u64() >> 40) as f32 / (1_u64 << 24) as f32 - 0.5).sum();
            of_three * width
        };
        let places: Vec<Vec<f32>> =
            (0..50).map(|_| (0..dimension).map(|_| component(2.0)).collect()).collect();
        let around = |place: &Vec<f32>, component: &mut dyn FnMut(f32) -> f32| {
            place.iter().map(|at| at + component(1.0)).collect()
        };
        (0..count).map(|number| around(&places[number * 31 % 50], &mut component)).collect()
    }

    fn clusters_of(similarity: Similarity, vectors: &[Vec<f32>]) -> Clusters {
        let mut sample = Sample::new(similarity, vectors[0].len());
        for vector in vectors {
            sample.offer(vector);
        }
        sample.into_clusters()
    }

    /// The share of the ten nearest that a search finds.
    fn recall(similarity: Similarity, vectors: &[Vec<f32>], targets: &[Vec<f32>]) -> f64 {
        let clusters = clusters_of(similarity, vectors);
        let mut lists = vec![Vec::new(); clusters.len()];
        for (number, vector) in vectors.iter().enumerate() {
            let (list, difference) = clusters.place_of(vector).unwrap();
            let mut bytes = Vec::new();
            quantise(&difference, &mut bytes);
            lists[list].push((number, bytes));
        }
        let mut found = 0;
        for vector in targets {
            let target = Target::new(similarity, vector.clone());
            let mut order: Vec<(f32, usize, &[f32])> = Vec::new();
            for (list, centroid) in clusters.centroids().enumerate() {
                order.push((target.similarity_to_centroid(centroid), list, centroid));
            }
            order.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
            order.truncate(lists_to_read(clusters.len(), false));
            // As many as the first round of a search takes.
            let (mut candidates, mut exact) = (Nearest::new(2 * 10 + 32), Nearest::new(10));
            for (_, list, centroid) in order {
                let target = target.in_list(centroid.to_vec());
                for (number, bytes) in &lists[list] {
                    let quantised = Quantised::parse(bytes, vector.len()).unwrap();
                    candidates.offer(target.estimate(&quantised), *number);
                }
            }
            for (number, vector) in vectors.iter().enumerate() {
                let bytes: Vec<u8> = vector.iter().flat_map(|component| component.to_be_bytes()).collect();
                exact.offer(target.similarity_to(&bytes).unwrap(), number);
            }
            let candidates: BTreeSet<usize> =
                candidates.into_sorted().into_iter().map(|(_, number)| number).collect();
            found += exact.into_sorted().iter().filter(|(_, number)| candidates.contains(number)).count();
        }
        found as f64 / (10 * targets.len()) as f64
    }

    #[test]
    fn a_search_of_a_few_lists_finds_nearly_all() {
        let vectors = clustered(5_100, 32);
        let (targets, vectors) = vectors.split_at(100);
        for similarity in [Similarity::Cosine, Similarity::Euclidean, Similarity::DotProduct] {
            let recall = recall(similarity, vectors, targets);
            assert!(recall >= 0.95, "{similarity:?}: {recall}");
        }
    }

    #[test]
    fn vectors_far_from_the_origin_are_found_by_their_distances() {
        for offset in [1e3, 1e4] {
            let mut vectors = clustered(5_100, 32);
            vectors.iter_mut().flatten().for_each(|component| *component += offset);
            let (targets, vectors) = vectors.split_at(100);
            let recall = recall(Similarity::Euclidean, vectors, targets);
            assert!(recall >= 0.95, "{offset}: {recall}");
        }
    }

    #[test]
    fn places_on_the_earth_in_metres_are_found_by_their_distances() {
        let mut random = SplitMix64::new(11);
        let mut around = |at: f32| at + random.below(1_000_000) as f32 / 1_000.0 - 500.0;
        let vectors: Vec<Vec<f32>> =
            (0..5_100).map(|_| [4e6, 7e5, 4.9e6].map(&mut around).to_vec()).collect();
        let (targets, vectors) = vectors.split_at(100);
        let recall = recall(Similarity::Euclidean, vectors, targets);
        assert!(recall >= 0.95, "{recall}");
    }

    #[test]
    fn equal_vectors_make_equal_lists() {
        let vectors = clustered(3_000, 8);
        let [first, second] = [(); 2].map(|()| clusters_of(Similarity::Cosine, &vectors));
        assert_eq!(first.centroids, second.centroids);
        assert!(first.len() > 50 && first.len() < 200, "{}", first.len());
        for vector in &vectors {
            assert_eq!(first.place_of(vector), second.place_of(vector));
        }
    }

    #[test]
    fn a_sample_has_a_bound_and_later_vectors_too() {
        let mut sample = Sample::with_room(Similarity::Euclidean, 1, 100);
        (0_u16..10_000).for_each(|number| sample.offer(&[f32::from(number)]));
        assert_eq!(sample.taken.len(), 100);
        let later = sample.taken.iter().filter(|component| **component >= 5_000.0).count();
        assert!((30..70).contains(&later), "{later}");
    }

    #[test]
    fn few_equal_or_no_vectors_are_no_trouble() {
        let clusters = Sample::new(Similarity::Cosine, 3).into_clusters();
        assert!(clusters.is_empty());
        assert_eq!(clusters.place_of(&[5.0, 6.0, 7.0]), None);
        let clusters = clusters_of(Similarity::Cosine, &vec![vec![1.0, 2.0, 3.0]; 2_000]);
        assert_eq!((clusters.len(), clusters.place_of(&[5.0, 6.0, 7.0]).unwrap().0), (1, 0));
        let clusters = clusters_of(Similarity::Euclidean, &[vec![0.0, 0.0], vec![1.0, 0.0]]);
        assert_eq!((clusters.len(), clusters.place_of(&[5.0, 6.0]).unwrap().0), (1, 0));
    }
}
