//! A search with the values of a request.

use helenus_engine::secondary_index::{IndexRestriction, IndexSearch};

use crate::schema::catalog::{Column, ColumnKind};

/// The part of a row that a restriction is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestrictedPart {
    PartitionKey,
    ClusteringKey,
    /// Cells of the static row.
    Static,
    /// Cells of the row.
    Regular,
}

impl RestrictedPart {
    pub(super) fn of(column: &Column) -> Self {
        match column.kind {
            ColumnKind::PartitionKey { .. } => Self::PartitionKey,
            ColumnKind::Clustering { .. } => Self::ClusteringKey,
            ColumnKind::Static => Self::Static,
            ColumnKind::Regular => Self::Regular,
        }
    }

    /// Whether what is stored of this part has the other part with it: the cells of a row have its key.
    fn comes_with(self, key: Self) -> bool {
        match key {
            Self::PartitionKey => true,
            Self::ClusteringKey => self == Self::Regular,
            Self::Static | Self::Regular => false,
        }
    }
}

/// The restrictions that rows must fulfil, one or more, each of which an index decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundSearch {
    pub restrictions: Vec<(RestrictedPart, IndexRestriction)>,
}

impl BoundSearch {
    /// The search by all restrictions: for a replica that answers alone.
    pub fn by_all(&self) -> IndexSearch {
        self.by(|_, _| true)
    }

    /// The searches by one restriction each.
    pub fn by_each(&self) -> Vec<IndexSearch> {
        (0..self.restrictions.len()).map(|number| self.by(|other, _| other == number)).collect()
    }

    /// The searches that find each row at some replica, wherever its columns are. A write may have reached one replica and another write of the row
    /// another one; read together they fulfil all restrictions, and at none of the two alone. So a search looks at the cells of one restriction at
    /// most, and besides at the key that is stored with them.
    pub fn whole_at_one_replica(&self) -> Vec<IndexSearch> {
        let cells = self
            .restrictions
            .iter()
            .enumerate()
            .filter(|(_, (part, _))| matches!(part, RestrictedPart::Static | RestrictedPart::Regular));
        let with_keys = cells.map(|(number, (part, _))| {
            self.by(|other, of_other| other == number || part.comes_with(of_other))
        });
        // Every row has its key.
        let by_key = self.by_keys();
        with_keys.chain((!by_key.restrictions.is_empty()).then_some(by_key)).collect()
    }

    /// The search by the restrictions on the key, which may be none: it misses no row wherever the cells of the row are.
    pub fn by_keys(&self) -> IndexSearch {
        self.by(|_, part| matches!(part, RestrictedPart::PartitionKey | RestrictedPart::ClusteringKey))
    }

    fn by(&self, is_chosen: impl Fn(usize, RestrictedPart) -> bool) -> IndexSearch {
        let chosen =
            self.restrictions.iter().enumerate().filter(|(number, (part, _))| is_chosen(*number, *part));
        IndexSearch { restrictions: chosen.map(|(_, (_, restriction))| restriction.clone()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::secondary_index::{IndexId, TermRange};

    use super::RestrictedPart::{ClusteringKey, PartitionKey, Regular, Static};
    use super::*;

    fn search(parts: &[RestrictedPart]) -> BoundSearch {
        let restriction = |number| IndexRestriction {
            index: IndexId([number as u8; 16]),
            terms: TermRange::OneOf(Vec::new()),
        };
        BoundSearch {
            restrictions: parts
                .iter()
                .enumerate()
                .map(|(number, part)| (*part, restriction(number)))
                .collect(),
        }
    }

    fn numbers(search: &IndexSearch) -> Vec<u8> {
        search.restrictions.iter().map(|restriction| restriction.index.0[0]).collect()
    }

    /// The numbers of the restrictions of each search.
    fn whole(parts: &[RestrictedPart]) -> Vec<Vec<u8>> {
        search(parts).whole_at_one_replica().iter().map(numbers).collect()
    }

    #[test]
    fn cells_that_may_be_at_different_replicas_are_never_looked_up_together() {
        assert_eq!(whole(&[Regular, Regular]), [[0], [1]]);
        assert_eq!(whole(&[Regular, Static]), [[0], [1]]);
        assert_eq!(whole(&[Static, Static, Regular]), [[0], [1], [2]]);
    }

    #[test]
    fn the_key_of_a_row_is_wherever_its_cells_are() {
        let rows = [vec![0, 1, 3], vec![1, 2, 3], vec![1, 3]];
        assert_eq!(whole(&[Regular, ClusteringKey, Regular, PartitionKey]), rows);
        // The static row has no clustering key.
        assert_eq!(whole(&[Static, ClusteringKey, PartitionKey]), [vec![0, 2], vec![1, 2]]);
        assert_eq!(whole(&[ClusteringKey, PartitionKey, ClusteringKey]), [[0, 1, 2]]);
    }

    #[test]
    fn a_search_by_keys_looks_at_no_cells() {
        assert_eq!(numbers(&search(&[Regular, ClusteringKey, Static, PartitionKey]).by_keys()), [1, 3]);
        assert_eq!(numbers(&search(&[Regular, Static]).by_keys()), [0_u8; 0]);
    }

    #[test]
    fn a_replica_that_answers_alone_looks_up_all() {
        let search = search(&[Regular, Static, ClusteringKey]);
        assert_eq!(numbers(&search.by_all()), [0, 1, 2]);
        assert_eq!(search.by_each().iter().map(numbers).collect::<Vec<_>>(), [[0], [1], [2]]);
    }
}
