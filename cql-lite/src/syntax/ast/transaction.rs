//! `BEGIN TRANSACTION … COMMIT TRANSACTION`: rows with names, what is returned of them, conditions on them, and modifications.

use super::{
    expression::{Expression, RowReference},
    identifier::Identifier,
    modify::Modification,
    select::{Comparison, Select},
};

/// `BEGIN TRANSACTION … COMMIT TRANSACTION`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// `USING TOKEN …`: a constant or a marker.
    pub token: Option<Expression>,
    /// The rows with names.
    pub rows: Vec<NamedRow>,
    /// The rows that it returns; they are those from before its modifications. `None`: it returns nothing.
    pub returning: Option<Returning>,
    /// `IF condition AND … THEN … END IF`. Empty: the modifications are made in any case.
    pub conditions: Vec<TransactionCondition>,
    /// The modifications, possibly none.
    pub modifications: Vec<(Modification, Place)>,
    /// The number of bind markers in all of it.
    pub marker_count: usize,
}

/// `LET name = (SELECT …)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRow {
    /// The name of the row.
    pub name: Identifier,
    /// The SELECT that finds it.
    pub select: Select,
    /// Where the SELECT stands.
    pub place: Place,
}

/// What a transaction returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returning {
    /// `SELECT … FROM …`
    Select {
        /// The SELECT.
        select: Box<Select>,
        /// Where it stands.
        place: Place,
    },
    /// `SELECT row.column, …`: one row; at least one column.
    References(Vec<RowReference>),
}

/// One condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionCondition {
    /// `reference IS [NOT] NULL`
    IsNull {
        /// A row or a value of one.
        reference: RowReference,
        /// `IS NOT NULL`
        negated: bool,
    },
    /// `left operator right`; at least one of both is an [`Expression::Reference`].
    Compare {
        /// The left side.
        left: Expression,
        /// The operator.
        operator: Comparison,
        /// The right side.
        right: Expression,
    },
}

/// Where a statement stands within the text, for messages about it. It is no part of what the text means: all places are equal.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The character within the line, from 1.
    pub column: usize,
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}
