//! Materialized views and projections.
//!
//! A materialized view has Cassandra's grammar. A projection has more: names of tables, a join, groups. `PROJECTION`, `JOIN` and `REPAIR` are no
//! keywords: they are names everywhere else.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        AlterView, CheckView, CreateView, DropView, Expression, Identifier, Statement, ViewJoin, ViewKind,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::Symbol,
};

/// Words before JOIN in SQL that say which rows are joined, and that would be taken for another name of the table before them.
const KINDS_OF_JOIN: [&str; 6] = ["left", "right", "inner", "outer", "cross", "natural"];

impl Parser<'_> {
    /// Whether `PROJECTION` comes next.
    pub(super) fn is_projection(&self) -> bool {
        self.is_word_at(0, "projection")
    }

    pub(super) fn create_view(&mut self) -> Result<Statement> {
        let kind = self.view_kind()?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        self.expect_keyword(Keyword::As)?;
        self.expect_keyword(Keyword::Select)?;
        let clause = self.select_clause()?;
        self.expect_keyword(Keyword::From)?;
        let from = self.table_name()?;
        let is_projection = kind == ViewKind::Projection;
        let alias = if is_projection { self.table_alias()? } else { None };
        let join = if is_projection { self.view_join()? } else { None };
        let relations = if self.is_keyword(Keyword::Where) {
            self.takes_qualified_columns = is_projection;
            self.where_clause()?
        } else {
            Vec::new()
        };
        let group_by = if is_projection { self.group_by_clause()? } else { Vec::new() };
        let primary_key = self.primary_key()?;
        let options = self.table_options(false)?;
        Ok(Statement::CreateView(CreateView {
            kind,
            if_not_exists,
            name,
            clause,
            from,
            alias,
            join,
            relations,
            group_by,
            primary_key,
            options,
        }))
    }

    /// `MATERIALIZED VIEW` or `PROJECTION`
    pub(super) fn view_kind(&mut self) -> Result<ViewKind> {
        if self.is_projection() {
            self.advance();
            return Ok(ViewKind::Projection);
        }
        self.expect_keyword(Keyword::Materialized)?;
        self.expect_keyword(Keyword::View)?;
        Ok(ViewKind::Materialized)
    }

    /// `[AS] name` after a table, if present. Without AS the name is not one of the words that can follow the table.
    fn table_alias(&mut self) -> Result<Option<Identifier>> {
        if self.eat_keyword(Keyword::As) {
            return self.name().map(Some);
        }
        let is_groups = self.is_keyword(Keyword::Group) && self.is_keyword_at(1, Keyword::By);
        if !self.is_name() || is_groups || self.is_word_at(0, "join") {
            return Ok(None);
        }
        let is_kind = KINDS_OF_JOIN.iter().any(|kind| self.is_word_at(0, kind));
        if is_kind && (self.is_word_at(1, "join") || self.is_word_at(1, "outer")) {
            return Err(self.mismatched("K_JOIN"));
        }
        self.name().map(Some)
    }

    /// `JOIN table alias ON …`, if present.
    fn view_join(&mut self) -> Result<Option<ViewJoin>> {
        if !self.is_word_at(0, "join") {
            return Ok(None);
        }
        self.advance();
        let table = self.table_name()?;
        let alias = self.table_alias()?;
        self.expect_keyword(Keyword::On)?;
        let on = self.and_separated(|parser| {
            let left = parser.possibly_qualified_column()?;
            parser.expect(Symbol::Equal)?;
            Ok((left, parser.possibly_qualified_column()?))
        })?;
        if self.is_word_at(0, "join") {
            let place = self.position();
            return Err(SyntaxError::Rule(format!("{place} A projection has at most one JOIN")));
        }
        Ok(Some(ViewJoin { table, alias, on }))
    }

    /// `column` or `table.column`
    fn possibly_qualified_column(&mut self) -> Result<Expression> {
        let first = Expression::Column(self.name()?);
        if !self.eat(Symbol::Dot) {
            return Ok(first);
        }
        Ok(Expression::Field { operand: Box::new(first), field: self.name()? })
    }

    pub(super) fn alter_view(&mut self) -> Result<Statement> {
        let kind = self.view_kind()?;
        let if_exists = self.if_exists()?;
        let name = self.table_name()?;
        let properties = self.with_properties()?;
        Ok(Statement::AlterView(AlterView { kind, if_exists, name, properties }))
    }

    pub(super) fn drop_view(&mut self) -> Result<Statement> {
        let kind = self.view_kind()?;
        let if_exists = self.if_exists()?;
        Ok(Statement::DropView(DropView { kind, if_exists, name: self.table_name()? }))
    }

    /// `CHECK PROJECTION name [REPAIR]`
    pub(super) fn check_view(&mut self) -> Result<Statement> {
        self.advance();
        if !self.is_projection() {
            return Err(self.mismatched("K_PROJECTION"));
        }
        self.advance();
        let name = self.table_name()?;
        let repair = self.is_word_at(0, "repair");
        if repair {
            self.advance();
        }
        Ok(Statement::CheckView(CheckView { name, repair }))
    }
}
