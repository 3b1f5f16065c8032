//! A relation of a WHERE clause with its names and terms resolved.

use super::restriction::FilterTest;
use crate::plan::term::Term;

/// One relation with its names and terms resolved.
pub(super) struct Resolved {
    pub(super) subject: ResolvedSubject,
    pub(super) test: FilterTest,
    pub(super) is_slice: bool,
}

/// The subject of a relation.
pub(super) enum ResolvedSubject {
    Column(usize),
    Columns(Vec<usize>),
    Element { column: usize, key: Term },
    Token { lower: bool, upper: bool, inclusive: bool },
}
