//! CREATE TABLE and ALTER TABLE, and the parts that views have as well.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        AlterTable, AlterTableOperation, ColumnConstraint, ColumnDefinition, ColumnMask, Comparison,
        CopyTable, CreateTable, Direction, DropTable, Identifier, Literal, PrimaryKey, QualifiedName,
        Statement, TableOptions, Truncate,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn create_table(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let table = self.table_name()?;
        if self.eat_keyword(Keyword::Like) {
            return self.copy_table(if_not_exists, table);
        }
        let mut columns = Vec::new();
        let mut primary_keys = Vec::new();
        self.expect(Symbol::LeftParenthesis)?;
        loop {
            if self.is_keyword(Keyword::Primary) {
                primary_keys.push(self.primary_key()?);
            } else {
                let column = self.column_definition()?;
                if self.eat_keyword(Keyword::Primary) {
                    self.expect_keyword(Keyword::Key)?;
                    primary_keys
                        .push(PrimaryKey { partition: vec![column.name.clone()], clustering: Vec::new() });
                }
                columns.push(column);
            }
            // Cassandra accepts doubled and trailing commas.
            let mut has_comma = false;
            while self.eat(Symbol::Comma) {
                has_comma = true;
            }
            if self.eat(Symbol::RightParenthesis) {
                break;
            }
            if !has_comma {
                return Err(self.mismatched("')'"));
            }
        }
        let options = self.table_options(true)?;
        Ok(Statement::CreateTable(CreateTable { if_not_exists, table, columns, primary_keys, options }))
    }

    /// The rest of a statement after `LIKE`.
    fn copy_table(&mut self, if_not_exists: bool, table: QualifiedName) -> Result<Statement> {
        let source = self.table_name()?;
        let (mut with_indexes, mut properties) = (false, Vec::new());
        if self.eat_keyword(Keyword::With) {
            self.and_separated(|parser| {
                if parser.is_keyword(Keyword::Indexes) && !parser.is_at(1, Symbol::Equal) {
                    parser.advance();
                    with_indexes = true;
                } else {
                    let property = parser.property(&properties)?;
                    properties.push(property);
                }
                Ok(())
            })?;
        }
        Ok(Statement::CopyTable(CopyTable { if_not_exists, table, source, with_indexes, properties }))
    }

    fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.name()?;
        let type_name = self.type_name()?;
        let is_static = self.eat_keyword(Keyword::Static);
        let is_not_null = self.eat_keyword(Keyword::Not);
        if is_not_null {
            self.expect_keyword(Keyword::Null)?;
        }
        let mask = if self.is_keyword(Keyword::Masked) { Some(self.column_mask()?) } else { None };
        let constraints =
            if self.eat_keyword(Keyword::Check) { self.column_constraints()? } else { Vec::new() };
        Ok(ColumnDefinition { name, type_name, is_static, is_not_null, mask, constraints })
    }

    /// The constraints after `CHECK`.
    pub(super) fn column_constraints(&mut self) -> Result<Vec<ColumnConstraint>> {
        self.and_separated(Self::column_constraint)
    }

    fn column_constraint(&mut self) -> Result<ColumnConstraint> {
        if self.eat_keyword(Keyword::Not) {
            self.expect_keyword(Keyword::Null)?;
            return Ok(ColumnConstraint::NotNull);
        }
        let name = self.name()?;
        if !self.eat(Symbol::LeftParenthesis) {
            return Ok(match self.constraint_relation()? {
                Some((comparison, term)) => ColumnConstraint::Value { column: name, comparison, term },
                None => ColumnConstraint::Function { name, arguments: Vec::new(), relation: None },
            });
        }
        let arguments =
            self.comma_separated_until(Symbol::RightParenthesis, |parser| match parser.literal() {
                Some(literal) => Ok(literal),
                None if parser.is_name() => {
                    Err(SyntaxError::Rule("Constraint function parameters need to be strings.".to_owned()))
                }
                None => Err(parser.no_viable_alternative()),
            })?;
        let relation = self.constraint_relation()?;
        Ok(ColumnConstraint::Function { name, arguments, relation })
    }

    /// `< 5`, if present.
    fn constraint_relation(&mut self) -> Result<Option<(Comparison, Literal)>> {
        let Some(comparison) = self.comparison() else { return Ok(None) };
        match self.literal() {
            Some(literal) if literal != Literal::Null => Ok(Some((comparison, literal))),
            _ => Err(self.no_viable_alternative()),
        }
    }

    pub(super) fn column_mask(&mut self) -> Result<ColumnMask> {
        self.expect_keyword(Keyword::Masked)?;
        self.expect_keyword(Keyword::With)?;
        if self.is_keyword(Keyword::Default) && !self.is_function_call() {
            self.advance();
            return Ok(ColumnMask::Default);
        }
        let name = self.function_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let arguments = self.comma_separated_until(Symbol::RightParenthesis, Self::value)?;
        Ok(ColumnMask::Function { name, arguments })
    }

    /// `PRIMARY KEY ((a, b), c)`
    pub(super) fn primary_key(&mut self) -> Result<PrimaryKey> {
        self.expect_keyword(Keyword::Primary)?;
        self.expect_keyword(Keyword::Key)?;
        self.expect(Symbol::LeftParenthesis)?;
        let partition = if self.eat(Symbol::LeftParenthesis) {
            let columns = self.comma_separated(Self::name)?;
            self.expect(Symbol::RightParenthesis)?;
            columns
        } else {
            vec![self.name()?]
        };
        let clustering = if self.eat(Symbol::Comma) { self.comma_separated(Self::name)? } else { Vec::new() };
        self.expect(Symbol::RightParenthesis)?;
        Ok(PrimaryKey { partition, clustering })
    }

    /// `WITH … AND …`, if present.
    pub(super) fn table_options(&mut self, is_table: bool) -> Result<TableOptions> {
        let mut options = TableOptions::default();
        if !self.eat_keyword(Keyword::With) {
            return Ok(options);
        }
        self.and_separated(|parser| {
            if parser.is_keyword(Keyword::Compact) && parser.is_keyword_at(1, Keyword::Storage) {
                if !is_table {
                    return Err(SyntaxError::Rule(
                        "COMPACT STORAGE tables are not allowed starting with version 4.0".into(),
                    ));
                }
                parser.advance();
                parser.advance();
                options.compact_storage = true;
            } else if parser.is_keyword(Keyword::Clustering) && parser.is_keyword_at(1, Keyword::Order) {
                options.clustering_order.extend(parser.clustering_order()?);
            } else {
                let property = parser.property(&options.properties)?;
                options.properties.push(property);
            }
            Ok(())
        })?;
        Ok(options)
    }

    fn clustering_order(&mut self) -> Result<Vec<(Identifier, Direction)>> {
        self.advance();
        self.advance();
        self.expect_keyword(Keyword::By)?;
        self.expect(Symbol::LeftParenthesis)?;
        let order = self.comma_separated(|parser| {
            let column = parser.name()?;
            match parser.direction() {
                Some(direction) => Ok((column, direction)),
                None => Err(parser.no_viable_alternative()),
            }
        })?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(order)
    }

    pub(super) fn alter_table(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let table = self.table_name()?;
        let operation = match self.peek() {
            TokenKind::Keyword(Keyword::Alter) => self.alter_column()?,
            TokenKind::Keyword(Keyword::Add) => {
                self.advance();
                let if_not_exists = self.if_not_exists()?;
                let columns = self.one_or_several(Self::column_definition)?;
                AlterTableOperation::AddColumns { if_not_exists, columns }
            }
            TokenKind::Keyword(Keyword::Drop) => self.drop_columns()?,
            TokenKind::Keyword(Keyword::Rename) => {
                self.advance();
                let if_exists = self.if_exists()?;
                AlterTableOperation::RenameColumns { if_exists, renames: self.and_separated(Self::rename)? }
            }
            TokenKind::Keyword(Keyword::With) => AlterTableOperation::SetProperties(self.with_properties()?),
            _ => return Err(self.no_viable_alternative()),
        };
        Ok(Statement::AlterTable(AlterTable { if_exists, table, operation }))
    }

    fn alter_column(&mut self) -> Result<AlterTableOperation> {
        self.advance();
        let if_exists = self.if_exists()?;
        let column = self.column_name()?;
        match self.peek() {
            TokenKind::Keyword(Keyword::Type) if !if_exists => {
                self.advance();
                Ok(AlterTableOperation::AlterColumnType { column, type_name: self.type_name()? })
            }
            TokenKind::Keyword(Keyword::Masked) => {
                let mask = Some(self.column_mask()?);
                Ok(AlterTableOperation::AlterColumnMask { if_exists, column, mask })
            }
            TokenKind::Keyword(Keyword::Check) => {
                self.advance();
                let constraints = self.column_constraints()?;
                Ok(AlterTableOperation::AlterColumnConstraints { if_exists, column, constraints })
            }
            TokenKind::Keyword(Keyword::Drop) if self.is_keyword_at(1, Keyword::Check) => {
                self.advance();
                self.advance();
                let constraints = Vec::new();
                Ok(AlterTableOperation::AlterColumnConstraints { if_exists, column, constraints })
            }
            TokenKind::Keyword(Keyword::Drop) => {
                self.advance();
                self.expect_keyword(Keyword::Masked)?;
                Ok(AlterTableOperation::AlterColumnMask { if_exists, column, mask: None })
            }
            _ => Err(self.no_viable_alternative()),
        }
    }

    fn drop_columns(&mut self) -> Result<AlterTableOperation> {
        self.advance();
        if self.is_keyword(Keyword::Compact) && self.is_keyword_at(1, Keyword::Storage) {
            self.advance();
            self.advance();
            return Ok(AlterTableOperation::DropCompactStorage);
        }
        let if_exists = self.if_exists()?;
        let columns = self.one_or_several(Self::name)?;
        let timestamp = if self.eat_keyword(Keyword::Using) {
            self.expect_keyword(Keyword::Timestamp)?;
            Some(self.timestamp()?)
        } else {
            None
        };
        Ok(AlterTableOperation::DropColumns { if_exists, columns, timestamp })
    }

    fn timestamp(&mut self) -> Result<i64> {
        if self.peek() != TokenKind::Integer {
            return Err(self.mismatched("INTEGER"));
        }
        let text = self.text_of(self.token());
        let timestamp = text
            .parse()
            .map_err(|_| SyntaxError::Rule(format!("The timestamp {text} does not fit into 64 bits")))?;
        self.advance();
        Ok(timestamp)
    }

    /// One item, or several in parentheses.
    fn one_or_several<T>(&mut self, item: fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if !self.eat(Symbol::LeftParenthesis) {
            return Ok(vec![item(self)?]);
        }
        let items = self.comma_separated(item)?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(items)
    }

    /// `a TO b`
    pub(super) fn rename(&mut self) -> Result<(Identifier, Identifier)> {
        let from = self.name()?;
        self.expect_keyword(Keyword::To)?;
        Ok((from, self.name()?))
    }

    pub(super) fn drop_table(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropTable(DropTable { if_exists, table: self.table_name()? }))
    }

    pub(super) fn truncate(&mut self) -> Result<Statement> {
        self.advance();
        if !self.eat_keyword(Keyword::Table) {
            self.eat_keyword(Keyword::Columnfamily);
        }
        Ok(Statement::Truncate(Truncate { table: self.table_name()? }))
    }
}
