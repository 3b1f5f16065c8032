//! The resolved restrictions of a WHERE clause: values of keys, slices of clustering columns, filters.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::Comparison;

use crate::error::RequestError;
use crate::plan::term::Term;
use crate::schema::catalog::Table;
use crate::schema::index_terms::TextAnalysis;

/// Cassandra's error for a query that needs filtering.
pub const REQUIRES_ALLOW_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may \
    have unpredictable performance. If you want to execute this query despite the performance unpredictability, use \
    ALLOW FILTERING";

/// The permitted values of a column: one (`=`) or several (`IN`).
#[derive(Debug, Clone)]
pub enum Values {
    One(Term),
    Many(Vec<Term>),
    /// One term for the whole list (`IN ?`).
    List(Term),
}

impl Values {
    /// The term of the value, if there is only one.
    pub fn only(&self) -> Option<&Term> {
        match self {
            Self::One(term) => Some(term),
            Self::Many(_) | Self::List(_) => None,
        }
    }

    /// The terms of the values; none if one term stands for the whole list.
    pub fn terms(&self) -> &[Term] {
        match self {
            Self::One(term) => std::slice::from_ref(term),
            Self::Many(terms) => terms,
            Self::List(_) => &[],
        }
    }
}

/// A value for several columns: a term for each, or one term for the tuple.
#[derive(Debug, Clone)]
pub enum TupleTerm {
    Terms(Vec<Term>),
    Tuple(Term),
}

/// The permitted combined values of several columns.
#[derive(Debug, Clone)]
pub enum TupleValues {
    One(TupleTerm),
    Many(Vec<TupleTerm>),
    List(Term),
}

impl TupleValues {
    /// The tuples; none if one term stands for the whole list.
    pub fn tuples(&self) -> &[TupleTerm] {
        match self {
            Self::One(tuple) => std::slice::from_ref(tuple),
            Self::Many(tuples) => tuples,
            Self::List(_) => &[],
        }
    }
}

/// The partitions of a statement.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one a prepared statement, and it is not moved around")]
pub enum PartitionRestriction {
    /// One set of values for each partition key column: each combination is a partition.
    Keys(Vec<Values>),
    /// All partitions with a token between the bounds.
    Range(TokenRange),
}

#[derive(Debug, Clone)]
pub struct TokenBound {
    pub token: Term,
    pub inclusive: bool,
}

/// A restriction of one or more clustering columns, from index `first` of the clustering key.
#[derive(Debug, Clone)]
pub enum ClusteringRestriction {
    Values { first: usize, values: Values },
    Tuples { first: usize, count: usize, values: TupleValues },
    Slice { first: usize, bounds: Vec<SliceBound> },
}

/// One end of a slice of clustering columns.
#[derive(Debug, Clone)]
pub struct SliceBound {
    /// The number of columns that it spans.
    pub count: usize,
    pub value: TupleTerm,
    pub is_lower: bool,
    pub inclusive: bool,
}

/// A condition that is checked on each row.
#[derive(Debug, Clone)]
pub struct Filter {
    pub subject: FilterSubject,
    pub test: FilterTest,
    /// What is done to the texts before they are compared, because an index that decides the filter does so.
    pub analysis: Option<TextAnalysis>,
}

#[derive(Debug, Clone)]
pub enum FilterSubject {
    /// An index in [`Table::columns`](crate::schema::catalog::Table::columns).
    Column(usize),
    /// Several columns, compared as a tuple.
    Columns(Vec<usize>),
    /// The value at a key of a map column.
    Element { column: usize, key: Term },
}

#[derive(Debug, Clone)]
pub enum FilterTest {
    Compare(Comparison, Term),
    In(Values),
    CompareTuple(Comparison, TupleTerm),
    InTuples(TupleValues),
    Contains(Term),
    ContainsKey(Term),
    Like {
        pattern: Term,
        /// An index of the column is for the parts of texts.
        finds_parts: bool,
    },
}

impl Filter {
    /// Whether the filter compares with the same values each time that these are computed for a request.
    pub fn is_pure(&self) -> bool {
        let is_tuple_pure = |tuple: &TupleTerm| match tuple {
            TupleTerm::Terms(terms) => terms.iter().all(Term::is_pure),
            TupleTerm::Tuple(term) => term.is_pure(),
        };
        let is_test_pure = match &self.test {
            FilterTest::Compare(_, term)
            | FilterTest::Contains(term)
            | FilterTest::ContainsKey(term)
            | FilterTest::Like { pattern: term, .. }
            | FilterTest::In(Values::One(term) | Values::List(term))
            | FilterTest::InTuples(TupleValues::List(term)) => term.is_pure(),
            FilterTest::In(Values::Many(terms)) => terms.iter().all(Term::is_pure),
            FilterTest::CompareTuple(_, tuple) | FilterTest::InTuples(TupleValues::One(tuple)) => {
                is_tuple_pure(tuple)
            }
            FilterTest::InTuples(TupleValues::Many(tuples)) => tuples.iter().all(is_tuple_pure),
        };
        let is_key_pure = match &self.subject {
            FilterSubject::Element { key, .. } => key.is_pure(),
            FilterSubject::Column(_) | FilterSubject::Columns(_) => true,
        };
        is_test_pure && is_key_pure
    }
}

impl FilterSubject {
    /// The columns that the filter reads.
    pub fn columns(&self) -> &[usize] {
        match self {
            Self::Column(column) | Self::Element { column, .. } => std::slice::from_ref(column),
            Self::Columns(columns) => columns,
        }
    }
}

/// Bounds for the tokens of partitions.
#[derive(Debug, Clone, Default)]
pub struct TokenRange {
    pub lower: Option<TokenBound>,
    pub upper: Option<TokenBound>,
}

/// The parts of a WHERE clause.
#[derive(Debug, Clone)]
pub struct Restrictions {
    pub partition: PartitionRestriction,
    /// The token range that the partitions of [`PartitionRestriction::Keys`] must be in as well.
    pub key_tokens: Option<TokenRange>,
    pub clustering: Vec<ClusteringRestriction>,
    pub filters: Vec<Filter>,
    /// Columns (indexes in [`Table::columns`](crate::schema::catalog::Table::columns)) with an `=` relation.
    pub equal_columns: BTreeSet<usize>,
}

impl Restrictions {
    /// Whether the clustering restrictions name rows, and not ranges.
    pub fn names_rows(&self, table: &Table) -> bool {
        let named = self.clustering.iter().map(|restriction| match restriction {
            ClusteringRestriction::Values { .. } => 1,
            ClusteringRestriction::Tuples { count, .. } => *count,
            ClusteringRestriction::Slice { .. } => 0,
        });
        named.sum::<usize>() == table.clustering_key_count
    }

    /// Whether the partition key is restricted to several values by IN.
    pub fn has_partition_in(&self) -> bool {
        matches!(&self.partition, PartitionRestriction::Keys(keys) if keys.iter().any(|v| !matches!(v, Values::One(_))))
    }
}

/// The error for a null where a value is needed.
pub fn null_value(column: &str) -> RequestError {
    RequestError::invalid(format!("Invalid null value in condition for column {column}"))
}

/// The error for an unset value where a value is needed.
pub fn unset_value(column: &str) -> RequestError {
    RequestError::invalid(format!("Invalid unset value for column {column}"))
}
