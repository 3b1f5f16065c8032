//! DESCRIBE.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{Describe, DescribeTarget, QualifiedName, Statement},
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn describe(&mut self) -> Result<Statement> {
        self.advance();
        let target = self.describe_target()?;
        let with_internals = self.eat_keyword(Keyword::With);
        if with_internals {
            self.expect_keyword(Keyword::Internals)?;
        }
        Ok(Statement::Describe(Describe { target, with_internals }))
    }

    fn describe_target(&mut self) -> Result<DescribeTarget> {
        // Most of these words can also be names.
        let is_qualified = self.is_at(1, Symbol::Dot);
        let names_follow = self.is_name_at(1);
        if self.is_projection() && names_follow {
            let kind = self.view_kind()?;
            return Ok(DescribeTarget::View { kind, name: self.table_name()? });
        }
        let TokenKind::Keyword(keyword) = self.peek() else { return self.described_name() };
        let target = match keyword {
            Keyword::Cluster if !is_qualified => DescribeTarget::Cluster,
            Keyword::Keyspaces if !is_qualified => DescribeTarget::Keyspaces,
            Keyword::Tables | Keyword::Columnfamilies if !is_qualified => DescribeTarget::Tables,
            Keyword::Types if !is_qualified => DescribeTarget::Types,
            Keyword::Functions if !is_qualified => DescribeTarget::Functions,
            Keyword::Aggregates if !is_qualified => DescribeTarget::Aggregates,
            Keyword::Schema => DescribeTarget::Schema { full: false },
            Keyword::Full => {
                self.advance();
                if !self.is_keyword(Keyword::Schema) {
                    return Err(self.mismatched("K_SCHEMA"));
                }
                DescribeTarget::Schema { full: true }
            }
            Keyword::Keyspace => return self.described_keyspace(false),
            Keyword::Only if self.is_keyword_at(1, Keyword::Keyspace) => {
                self.advance();
                return self.described_keyspace(true);
            }
            Keyword::Table | Keyword::Columnfamily => {
                self.advance();
                return self.table_name().map(DescribeTarget::Table);
            }
            Keyword::Index => {
                self.advance();
                return self.table_name().map(DescribeTarget::Index);
            }
            Keyword::Materialized => {
                let kind = self.view_kind()?;
                return Ok(DescribeTarget::View { kind, name: self.table_name()? });
            }
            Keyword::Type if names_follow => {
                self.advance();
                return self.user_type_name().map(DescribeTarget::Type);
            }
            Keyword::Function if names_follow => {
                self.advance();
                return self.function_name().map(DescribeTarget::Function);
            }
            Keyword::Aggregate if names_follow => {
                self.advance();
                return self.function_name().map(DescribeTarget::Aggregate);
            }
            _ => return self.described_name(),
        };
        self.advance();
        Ok(target)
    }

    fn described_keyspace(&mut self, only: bool) -> Result<DescribeTarget> {
        self.advance();
        let name = if self.is_name() { Some(self.keyspace_name()?) } else { None };
        Ok(DescribeTarget::Keyspace { only, name })
    }

    fn described_name(&mut self) -> Result<DescribeTarget> {
        let first = self.name()?;
        let name = if self.eat(Symbol::Dot) {
            QualifiedName { keyspace: Some(first), name: self.name()? }
        } else {
            QualifiedName { keyspace: None, name: first }
        };
        Ok(DescribeTarget::Name(name))
    }
}
