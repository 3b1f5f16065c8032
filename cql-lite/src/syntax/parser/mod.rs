//! The parser: recursive descent over the tokens of a statement, with one file for each family of statements.
//!
//! Recursion is bounded by the nesting limit. Chains of operators, whose tree is as deep as the chain is long, are
//! bounded by [`OPERATORS_MAX`](cursor::OPERATORS_MAX). So neither parsing nor walking nor dropping the tree overflows
//! the stack.

mod cursor;
mod describe;
mod explain;
mod expression;
mod modify;
mod roles;
mod schema;
mod select;
mod table;
mod transaction;
mod types;
mod view;

use self::cursor::{Parser, Result};
use super::{
    ast::{ColumnConstraint, ColumnMask, CqlTypeName, Identifier, Statement},
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind, tokenize},
};

/// Limits of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting of expressions, types and parentheses, capped at [`Limits::NESTING_CEILING`].
    pub nesting: usize,
}

impl Limits {
    /// The largest nesting for which a stack of 2 MiB suffices.
    pub const NESTING_CEILING: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Self { nesting: 64 }
    }
}

/// A statement and the bind markers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The statement.
    pub statement: Statement,
    /// The names of its bind markers in the order of the text; `None` for a `?`.
    pub markers: Vec<Option<Identifier>>,
}

/// Parses one statement, which may end with semicolons.
pub fn parse(text: &str) -> Result<Statement, SyntaxError> {
    Ok(parse_with(text, Limits::default())?.statement)
}

/// Parses one statement under limits, and lists its bind markers.
pub fn parse_with(text: &str, limits: Limits) -> Result<Parsed, SyntaxError> {
    let mut parser = Parser::new(text, tokenize(text)?, limits.nesting.min(Limits::NESTING_CEILING));
    let statement = parser.statement()?;
    while parser.eat(Symbol::Semicolon) {}
    parser.expect_end()?;
    Ok(Parsed { statement, markers: parser.markers })
}

/// Parses the constraints of a column, as they stand after `CHECK`.
pub fn parse_constraints(text: &str) -> Result<Vec<ColumnConstraint>, SyntaxError> {
    let mut parser = parser_of_part(text)?;
    let constraints = parser.column_constraints()?;
    parser.expect_end()?;
    Ok(constraints)
}

/// Parses a type.
pub fn parse_type(text: &str) -> Result<CqlTypeName, SyntaxError> {
    let mut parser = parser_of_part(text)?;
    let named = parser.type_name()?;
    parser.expect_end()?;
    Ok(named)
}

/// Parses the mask of a column: `MASKED WITH …`.
pub fn parse_mask(text: &str) -> Result<ColumnMask, SyntaxError> {
    let mut parser = parser_of_part(text)?;
    let mask = parser.column_mask()?;
    parser.expect_end()?;
    Ok(mask)
}

/// A parser of a part of a statement.
fn parser_of_part(text: &str) -> Result<Parser<'_>, SyntaxError> {
    Ok(Parser::new(text, tokenize(text)?, Limits::default().nesting))
}

impl Parser<'_> {
    fn statement(&mut self) -> Result<Statement> {
        if self.is_explain() {
            return self.explain();
        }
        let TokenKind::Keyword(keyword) = self.peek() else { return Err(self.no_viable_alternative()) };
        match keyword {
            Keyword::Select => self.select().map(Statement::Select),
            Keyword::Insert => self.insert().map(Statement::Insert),
            Keyword::Update => self.update().map(Statement::Update),
            Keyword::Delete => self.delete().map(Statement::Delete),
            Keyword::Begin if self.begins_transaction() => self.transaction().map(Statement::Transaction),
            Keyword::Begin => self.batch().map(Statement::Batch),
            Keyword::Use => {
                self.advance();
                self.keyspace_name().map(Statement::Use)
            }
            Keyword::Create => self.create(),
            Keyword::Alter => self.alter(),
            Keyword::Drop => self.drop(),
            Keyword::Truncate => self.truncate(),
            Keyword::Grant => self.grant(),
            Keyword::Revoke => self.revoke(),
            Keyword::List => self.list(),
            Keyword::Add => self.add_identity(),
            Keyword::Check => self.check_view(),
            Keyword::Describe | Keyword::Desc => self.describe(),
            _ => Err(self.no_viable_alternative()),
        }
    }

    /// `CREATE …`
    fn create(&mut self) -> Result<Statement> {
        self.advance();
        let or_replace = self.eat_keyword(Keyword::Or);
        if or_replace {
            self.expect_keyword(Keyword::Replace)?;
        }
        if !or_replace && self.is_projection() {
            return self.create_view();
        }
        let TokenKind::Keyword(keyword) = self.peek() else { return Err(self.no_viable_alternative()) };
        match keyword {
            Keyword::Function => self.create_function(or_replace),
            Keyword::Aggregate => self.create_aggregate(or_replace),
            _ if or_replace => Err(self.no_viable_alternative()),
            Keyword::Keyspace | Keyword::Schema => self.create_keyspace(),
            Keyword::Table | Keyword::Columnfamily => self.create_table(),
            Keyword::Type => self.create_type(),
            Keyword::Index | Keyword::Custom => self.create_index(),
            Keyword::Materialized => self.create_view(),
            Keyword::Trigger => self.create_trigger(),
            Keyword::Role => self.create_role(),
            Keyword::User => self.create_user(),
            _ => Err(self.no_viable_alternative()),
        }
    }

    /// `ALTER …`
    fn alter(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_projection() {
            return self.alter_view();
        }
        let TokenKind::Keyword(keyword) = self.peek() else { return Err(self.no_viable_alternative()) };
        match keyword {
            Keyword::Keyspace | Keyword::Schema => self.alter_keyspace(),
            Keyword::Table | Keyword::Columnfamily => self.alter_table(),
            Keyword::Type => self.alter_type(),
            Keyword::Materialized => self.alter_view(),
            Keyword::Role => self.alter_role(),
            Keyword::User => self.alter_user(),
            _ => Err(self.no_viable_alternative()),
        }
    }

    /// `DROP …`
    fn drop(&mut self) -> Result<Statement> {
        self.advance();
        if self.is_projection() {
            return self.drop_view();
        }
        let TokenKind::Keyword(keyword) = self.peek() else { return Err(self.no_viable_alternative()) };
        match keyword {
            Keyword::Keyspace | Keyword::Schema => self.drop_keyspace(),
            Keyword::Table | Keyword::Columnfamily => self.drop_table(),
            Keyword::Type => self.drop_type(),
            Keyword::Index => self.drop_index(),
            Keyword::Materialized => self.drop_view(),
            Keyword::Function => self.drop_function().map(Statement::DropFunction),
            Keyword::Aggregate => self.drop_function().map(Statement::DropAggregate),
            Keyword::Trigger => self.drop_trigger(),
            Keyword::Role | Keyword::User => self.drop_role(),
            Keyword::Identity => self.drop_identity(),
            _ => Err(self.no_viable_alternative()),
        }
    }
}
