//! INSERT, UPDATE, DELETE and BATCH.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        Assignment, AssignmentOperation, Batch, BatchKind, Condition, ConditionSubject, ConditionTest,
        Delete, Deletion, Expression, Identifier, IfClause, Insert, InsertSource, JsonDefault, JsonValue,
        Modification, Update, Using,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> Result<Insert> {
        self.insert_with(Self::comma_separated_values)
    }

    /// An INSERT whose values may be references.
    pub(super) fn insert_of_transaction(&mut self) -> Result<Insert> {
        self.insert_with(|parser| parser.with_references(Self::comma_separated_values))
    }

    fn comma_separated_values(&mut self) -> Result<Vec<Expression>> {
        self.comma_separated(Self::value)
    }

    fn insert_with(&mut self, values: fn(&mut Self) -> Result<Vec<Expression>>) -> Result<Insert> {
        self.advance();
        self.expect_keyword(Keyword::Into)?;
        let table = self.table_name()?;
        let source =
            if self.eat_keyword(Keyword::Json) { self.insert_json()? } else { self.insert_values(values)? };
        let if_not_exists = self.if_not_exists()?;
        Ok(Insert { table, source, if_not_exists, using: self.using(true)? })
    }

    fn insert_values(&mut self, values: fn(&mut Self) -> Result<Vec<Expression>>) -> Result<InsertSource> {
        self.expect(Symbol::LeftParenthesis)?;
        let columns = self.comma_separated(Self::column_name)?;
        self.expect(Symbol::RightParenthesis)?;
        self.expect_keyword(Keyword::Values)?;
        self.expect(Symbol::LeftParenthesis)?;
        let values = values(self)?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(InsertSource::Values { columns, values })
    }

    fn insert_json(&mut self) -> Result<InsertSource> {
        let value = if self.is_marker() {
            JsonValue::Marker(self.marker()?)
        } else {
            JsonValue::Text(self.string()?)
        };
        let default = if self.eat_keyword(Keyword::Default) {
            if self.eat_keyword(Keyword::Unset) {
                JsonDefault::Unset
            } else {
                self.expect_keyword(Keyword::Null)?;
                JsonDefault::Null
            }
        } else {
            JsonDefault::Null
        };
        Ok(InsertSource::Json { value, default })
    }

    /// `USING TTL … AND TIMESTAMP … AND TIMEOUT …`, if present. `takes_ttl`: TTL may be among them.
    fn using(&mut self, takes_ttl: bool) -> Result<Using> {
        let mut using = Using::default();
        if !self.eat_keyword(Keyword::Using) {
            return Ok(using);
        }
        self.and_separated(|parser| {
            let is_timeout = parser.is_timeout();
            let (name, place) = match parser.peek() {
                TokenKind::Keyword(Keyword::Timestamp) => ("TIMESTAMP", &mut using.timestamp),
                TokenKind::Keyword(Keyword::Ttl) if takes_ttl => ("TTL", &mut using.time_to_live),
                _ if is_timeout => ("TIMEOUT", &mut using.timeout),
                _ if takes_ttl => return Err(parser.no_viable_alternative()),
                _ => return Err(parser.mismatched("K_TIMESTAMP")),
            };
            parser.advance();
            if place.is_some() {
                return Err(SyntaxError::Rule(format!("Multiple definition for property {name}")));
            }
            *place = Some(if is_timeout {
                parser.literal_or_marker(TokenKind::Duration)?
            } else {
                parser.integer_or_marker()?
            });
            Ok(())
        })?;
        Ok(using)
    }

    pub(super) fn update(&mut self) -> Result<Update> {
        self.update_with(Self::assignments)
    }

    /// An UPDATE whose values may be references.
    pub(super) fn update_of_transaction(&mut self) -> Result<Update> {
        self.update_with(|parser| parser.with_references(Self::assignments))
    }

    fn assignments(&mut self) -> Result<Vec<Assignment>> {
        self.comma_separated(Self::assignment)
    }

    fn update_with(&mut self, assignments: fn(&mut Self) -> Result<Vec<Assignment>>) -> Result<Update> {
        self.advance();
        let table = self.table_name()?;
        let using = self.using(true)?;
        self.expect_keyword(Keyword::Set)?;
        let assignments = assignments(self)?;
        check_compatible(&assignments)?;
        let relations = self.where_clause()?;
        Ok(Update { table, using, assignments, relations, condition: self.if_clause()? })
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let column = self.column_name()?;
        let operation = match self.advance().kind {
            TokenKind::Symbol(Symbol::Equal) => self.assigned(&column)?,
            TokenKind::Symbol(Symbol::PlusEqual) => AssignmentOperation::Add(self.value()?),
            TokenKind::Symbol(Symbol::MinusEqual) => AssignmentOperation::Subtract(self.value()?),
            TokenKind::Symbol(Symbol::LeftBracket) => {
                let key = self.value()?;
                self.expect(Symbol::RightBracket)?;
                self.expect(Symbol::Equal)?;
                AssignmentOperation::SetElement { key, value: self.value()? }
            }
            TokenKind::Symbol(Symbol::Dot) => {
                let field = self.name()?;
                self.expect(Symbol::Equal)?;
                AssignmentOperation::SetField { field, value: self.value()? }
            }
            TokenKind::End => return Err(self.no_viable_alternative()),
            _ => {
                self.at -= 1;
                return Err(self.no_viable_alternative());
            }
        };
        Ok(Assignment { column, operation })
    }

    /// The right side of `column = …`.
    fn assigned(&mut self, column: &Identifier) -> Result<AssignmentOperation> {
        if self.is_name() {
            match self.peek_at(1) {
                TokenKind::Symbol(symbol @ (Symbol::Plus | Symbol::Minus)) => {
                    let sign = symbol.text();
                    self.same_column(column, &format!("X = X {sign}<value>"))?;
                    self.advance();
                    let value = self.value()?;
                    return Ok(if symbol == Symbol::Plus {
                        AssignmentOperation::Add(value)
                    } else {
                        AssignmentOperation::Subtract(value)
                    });
                }
                // `c = c -3`: the lexer reads `-3` as one token.
                TokenKind::Integer => {
                    self.same_column(column, "X = X - <value>")?;
                    let is_signed = self.text_of(self.token()).starts_with('-');
                    return match self.literal().filter(|_| is_signed) {
                        Some(literal) => Ok(AssignmentOperation::Add(Expression::Literal(literal))),
                        None => Err(self.no_viable_alternative()),
                    };
                }
                _ => {}
            }
        }
        let value = self.value()?;
        if self.eat(Symbol::Plus) {
            self.same_column(column, "X = <value> + X")?;
            return Ok(AssignmentOperation::Prepend(value));
        }
        Ok(AssignmentOperation::Set(value))
    }

    /// Requires the assigned column on the right side.
    fn same_column(&mut self, column: &Identifier, form: &str) -> Result<()> {
        if self.column_name()? == *column {
            return Ok(());
        }
        Err(SyntaxError::Rule(format!("Only expressions of the form {form} are supported.")))
    }

    /// `IF …`, if present.
    fn if_clause(&mut self) -> Result<Option<IfClause>> {
        if !self.eat_keyword(Keyword::If) {
            return Ok(None);
        }
        // A column may be called `exists`.
        let is_column = matches!(
            self.peek_at(1),
            TokenKind::Symbol(symbol) if symbol != Symbol::Semicolon
        ) || self.is_keyword_at(1, Keyword::In)
            || self.is_keyword_at(1, Keyword::Contains);
        if self.is_keyword(Keyword::Exists) && !is_column {
            self.advance();
            return Ok(Some(IfClause::Exists));
        }
        self.and_separated(Self::condition).map(|conditions| Some(IfClause::Conditions(conditions)))
    }

    fn condition(&mut self) -> Result<Condition> {
        let column = self.column_name()?;
        let subject = if self.eat(Symbol::LeftBracket) {
            let key = self.value()?;
            self.expect(Symbol::RightBracket)?;
            ConditionSubject::Element { column, key }
        } else if self.eat(Symbol::Dot) {
            ConditionSubject::Field { column, field: self.name()? }
        } else {
            ConditionSubject::Column(column)
        };
        let test = if let Some(operator) = self.comparison() {
            ConditionTest::Compare(operator, self.value()?)
        } else if self.eat_keyword(Keyword::In) {
            ConditionTest::In(self.single_column_in_values()?)
        } else if matches!(subject, ConditionSubject::Column(_)) && self.eat_keyword(Keyword::Contains) {
            let key = self.eat_keyword(Keyword::Key);
            ConditionTest::Contains { key, value: self.value()? }
        } else {
            return Err(self.no_viable_alternative());
        };
        Ok(Condition { subject, test })
    }

    pub(super) fn delete(&mut self) -> Result<Delete> {
        self.advance();
        let deletions = if self.is_keyword(Keyword::From) {
            Vec::new()
        } else {
            self.comma_separated(|parser| {
                let column = parser.column_name()?;
                if parser.eat(Symbol::LeftBracket) {
                    let key = parser.value()?;
                    parser.expect(Symbol::RightBracket)?;
                    return Ok(Deletion::Element { column, key });
                }
                if parser.eat(Symbol::Dot) {
                    return Ok(Deletion::Field { column, field: parser.name()? });
                }
                Ok(Deletion::Column(column))
            })?
        };
        self.expect_keyword(Keyword::From)?;
        let table = self.table_name()?;
        let using = self.using(false)?;
        let relations = self.where_clause()?;
        Ok(Delete { deletions, table, using, relations, condition: self.if_clause()? })
    }

    pub(super) fn batch(&mut self) -> Result<Batch> {
        self.advance();
        let kind = if self.eat_keyword(Keyword::Unlogged) {
            BatchKind::Unlogged
        } else if self.eat_keyword(Keyword::Counter) {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect_keyword(Keyword::Batch)?;
        let using = self.using(true)?;
        let mut statements = Vec::new();
        while !self.eat_keyword(Keyword::Apply) {
            statements.push(match self.peek() {
                TokenKind::Keyword(Keyword::Insert) => Modification::Insert(self.insert()?),
                TokenKind::Keyword(Keyword::Update) => Modification::Update(self.update()?),
                TokenKind::Keyword(Keyword::Delete) => Modification::Delete(self.delete()?),
                _ => return Err(self.mismatched("K_APPLY")),
            });
            self.eat(Symbol::Semicolon);
        }
        self.expect_keyword(Keyword::Batch)?;
        Ok(Batch { kind, using, statements })
    }
}

/// Rejects a statement that sets a column as a whole and also assigns to it in another way, or sets a field twice.
fn check_compatible(assignments: &[Assignment]) -> Result<()> {
    let is_whole = |assignment: &Assignment| matches!(assignment.operation, AssignmentOperation::Set(_));
    let mut by_column: Vec<&Assignment> = assignments.iter().collect();
    by_column.sort_by(|left, right| left.column.cmp(&right.column));
    for same in by_column.chunk_by(|left, right| left.column == right.column) {
        let fields: Vec<&Identifier> = same
            .iter()
            .filter_map(|assignment| match &assignment.operation {
                AssignmentOperation::SetField { field, .. } => Some(field),
                _ => None,
            })
            .collect();
        let sets_field_twice =
            fields.iter().enumerate().any(|(index, field)| fields[index + 1..].contains(field));
        if sets_field_twice || same.len() > 1 && same.iter().any(|assignment| is_whole(assignment)) {
            let column = same.first().map_or("", |assignment| assignment.column.as_str());
            return Err(SyntaxError::Rule(format!("Multiple incompatible setting of column {column}")));
        }
    }
    Ok(())
}
