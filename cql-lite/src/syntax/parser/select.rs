//! SELECT, and the WHERE clause of every statement.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        Comparison, Direction, Expression, Identifier, InValues, Literal, OrderBy, QualifiedName, Relation,
        Select, SelectClause, SelectedItem, Subject,
    },
    keyword::Keyword,
    lexer::{Symbol, Token, TokenKind, tokenize},
};

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Result<Select> {
        self.advance();
        let json = self.select_modifier(Keyword::Json);
        let distinct = self.select_modifier(Keyword::Distinct);
        let clause = self.select_clause()?;
        self.expect_keyword(Keyword::From)?;
        let from = self.table_name()?;
        let relations = if self.is_keyword(Keyword::Where) { self.where_clause()? } else { Vec::new() };
        let group_by = self.group_by_clause()?;
        let order_by = if self.eat_keyword(Keyword::Order) {
            self.expect_keyword(Keyword::By)?;
            self.comma_separated(Self::order_by)?
        } else {
            Vec::new()
        };
        let per_partition_limit = if self.eat_keyword(Keyword::Per) {
            self.expect_keyword(Keyword::Partition)?;
            self.expect_keyword(Keyword::Limit)?;
            Some(self.integer_or_marker()?)
        } else {
            None
        };
        let limit = if self.eat_keyword(Keyword::Limit) { Some(self.integer_or_marker()?) } else { None };
        let allow_filtering = self.eat_keyword(Keyword::Allow);
        if allow_filtering {
            self.expect_keyword(Keyword::Filtering)?;
        }
        // Both words are no keywords.
        let bypass_cache = self.is_word_at(0, "bypass") && self.is_word_at(1, "cache");
        if bypass_cache {
            self.advance();
            self.advance();
        }
        let timeout = if self.eat_keyword(Keyword::Using) {
            if !self.is_timeout() {
                return Err(self.no_viable_alternative());
            }
            self.advance();
            Some(self.literal_or_marker(TokenKind::Duration)?)
        } else {
            None
        };
        let freshness = if self.eat_keyword(Keyword::With) {
            if !self.is_word_at(0, "freshness") {
                return Err(self.mismatched("K_FRESHNESS"));
            }
            self.advance();
            Some(self.freshness()?)
        } else {
            None
        };
        Ok(Select {
            json,
            distinct,
            clause,
            from,
            relations,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            allow_filtering,
            bypass_cache,
            timeout,
            freshness,
        })
    }

    /// A duration, an integer or a marker. Between the number of a duration and its unit may be a blank.
    fn freshness(&mut self) -> Result<Expression> {
        if self.peek() == TokenKind::Integer && self.peek_at(1) == TokenKind::Word {
            let unit = self.tokens.get(self.at + 1).copied().unwrap_or_else(|| self.token());
            let text = format!("{}{}", self.text_of(self.token()), self.text_of(unit));
            let is_duration = tokenize(&text)
                .is_ok_and(|tokens| matches!(*tokens, [Token { kind: TokenKind::Duration, .. }, _]));
            if !is_duration {
                self.advance();
                return Err(self.no_viable_alternative());
            }
            self.advance();
            self.advance();
            return Ok(Expression::Literal(Literal::Duration(text)));
        }
        match self.peek() {
            TokenKind::Duration => self.literal_or_marker(TokenKind::Duration),
            _ => self.integer_or_marker(),
        }
    }

    /// `GROUP BY …`, if present.
    pub(super) fn group_by_clause(&mut self) -> Result<Vec<Expression>> {
        if !self.eat_keyword(Keyword::Group) {
            return Ok(Vec::new());
        }
        self.expect_keyword(Keyword::By)?;
        self.comma_separated(Self::selector)
    }

    /// Whether the next token is `TIMEOUT`, which is no keyword.
    pub(super) fn is_timeout(&self) -> bool {
        self.is_word_at(0, "timeout")
    }

    /// JSON or DISTINCT, unless the next token shows that it is the name of a column.
    fn select_modifier(&mut self, keyword: Keyword) -> bool {
        if !self.is_keyword(keyword) {
            return false;
        }
        let is_column = match self.peek_at(1) {
            TokenKind::Symbol(Symbol::Star) => !self.is_keyword_at(2, Keyword::From),
            TokenKind::Symbol(symbol) => !matches!(
                symbol,
                Symbol::LeftParenthesis
                    | Symbol::LeftBracket
                    | Symbol::LeftBrace
                    | Symbol::Question
                    | Symbol::Colon
                    | Symbol::Minus
            ),
            TokenKind::Keyword(Keyword::From) | TokenKind::End => true,
            TokenKind::Keyword(Keyword::As) => {
                !(self.is_keyword_at(2, Keyword::From) || self.is_at(2, Symbol::Comma))
            }
            _ => false,
        };
        if !is_column {
            self.advance();
        }
        !is_column
    }

    pub(super) fn select_clause(&mut self) -> Result<SelectClause> {
        if self.eat(Symbol::Star) {
            return Ok(SelectClause::All);
        }
        let items = self.comma_separated(|parser| {
            let expression = parser.selector()?;
            let alias = if parser.eat_keyword(Keyword::As) { Some(parser.name()?) } else { None };
            Ok(SelectedItem { expression, alias })
        })?;
        Ok(SelectClause::Items(items))
    }

    fn order_by(&mut self) -> Result<OrderBy> {
        let column = self.column_name()?;
        let nearest_to = if self.eat_keyword(Keyword::Ann) {
            self.expect_keyword(Keyword::Of)?;
            Some(self.value()?)
        } else {
            None
        };
        Ok(OrderBy { column, nearest_to, direction: self.direction().unwrap_or(Direction::Ascending) })
    }

    /// ASC or DESC, if present.
    pub(super) fn direction(&mut self) -> Option<Direction> {
        if self.eat_keyword(Keyword::Asc) {
            Some(Direction::Ascending)
        } else if self.eat_keyword(Keyword::Desc) {
            Some(Direction::Descending)
        } else {
            None
        }
    }

    /// `WHERE relation AND …`
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        self.expect_keyword(Keyword::Where)?;
        self.and_separated(Self::relation)
    }

    fn relation(&mut self) -> Result<Relation> {
        if self.is_keyword(Keyword::Token) {
            self.advance();
            let subject = Subject::Token(self.column_names()?);
            return match self.comparison() {
                Some(operator) => Ok(Relation::Compare { subject, operator, value: self.value()? }),
                None => self.between(subject, Self::value),
            };
        }
        if self.is(Symbol::LeftParenthesis) {
            let is_tuple = self.is_at(2, Symbol::Comma) || self.is_at(2, Symbol::RightParenthesis);
            if is_tuple {
                return self.multi_column_relation();
            }
            return self.nested(|parser| {
                parser.advance();
                let relation = parser.relation()?;
                parser.expect(Symbol::RightParenthesis)?;
                Ok(relation)
            });
        }
        let is_expression = self.peek() == TokenKind::Word
            && self.is_at(1, Symbol::LeftParenthesis)
            && self.text_of(self.token()).eq_ignore_ascii_case("expr");
        if is_expression {
            self.advance();
            self.advance();
            let index = QualifiedName { keyspace: None, name: self.name()? };
            self.expect(Symbol::Comma)?;
            let value = self.value()?;
            self.expect(Symbol::RightParenthesis)?;
            return Ok(Relation::CustomIndex { index, value });
        }
        if self.takes_qualified_columns && self.is_name() && self.is_at(1, Symbol::Dot) {
            let table = self.name()?;
            self.advance();
            let relation = Box::new(self.column_relation()?);
            return Ok(Relation::Qualified { table, relation });
        }
        self.column_relation()
    }

    fn column_relation(&mut self) -> Result<Relation> {
        let column = self.column_name()?;
        if self.eat(Symbol::LeftBracket) {
            let key = self.value()?;
            self.expect(Symbol::RightBracket)?;
            let subject = Subject::Element { column, key };
            let Some(operator) = self.comparison() else { return Err(self.no_viable_alternative()) };
            return Ok(Relation::Compare { subject, operator, value: self.value()? });
        }
        if let Some(operator) = self.comparison() {
            return Ok(Relation::Compare {
                subject: Subject::Column(column),
                operator,
                value: self.value()?,
            });
        }
        match self.peek() {
            TokenKind::Keyword(Keyword::Between) => self.between(Subject::Column(column), Self::value),
            TokenKind::Keyword(Keyword::Like) => {
                self.advance();
                Ok(Relation::Like { column, pattern: self.value()? })
            }
            TokenKind::Keyword(Keyword::Is) => {
                self.advance();
                self.expect_keyword(Keyword::Not)?;
                self.expect_keyword(Keyword::Null)?;
                Ok(Relation::IsNotNull { column })
            }
            TokenKind::Keyword(Keyword::In | Keyword::Contains | Keyword::Not) => {
                let negated = self.eat_keyword(Keyword::Not);
                if self.eat_keyword(Keyword::In) {
                    let values = self.in_values(Self::value)?;
                    return Ok(Relation::In { subject: Subject::Column(column), negated, values });
                }
                self.expect_keyword(Keyword::Contains)?;
                let key = self.eat_keyword(Keyword::Key);
                Ok(Relation::Contains { column, key, negated, value: self.value()? })
            }
            _ => Err(self.no_viable_alternative()),
        }
    }

    fn multi_column_relation(&mut self) -> Result<Relation> {
        let subject = Subject::Columns(self.column_names()?);
        if let Some(operator) = self.comparison() {
            return Ok(Relation::Compare { subject, operator, value: self.tuple_or_marker()? });
        }
        if self.is_keyword(Keyword::Between) {
            return self.between(subject, Self::tuple_or_marker);
        }
        let negated = self.eat_keyword(Keyword::Not);
        if !self.eat_keyword(Keyword::In) {
            return Err(self.no_viable_alternative());
        }
        Ok(Relation::In { subject, negated, values: self.in_values(Self::tuple_or_marker)? })
    }

    fn between(&mut self, subject: Subject, bound: fn(&mut Self) -> Result<Expression>) -> Result<Relation> {
        if !self.eat_keyword(Keyword::Between) {
            return Err(self.no_viable_alternative());
        }
        let from = bound(self)?;
        self.expect_keyword(Keyword::And)?;
        Ok(Relation::Between { subject, from, to: bound(self)? })
    }

    fn tuple_or_marker(&mut self) -> Result<Expression> {
        if self.is_marker() { self.marker().map(Expression::Marker) } else { self.nested(Self::tuple_value) }
    }

    /// The values of IN.
    fn in_values(&mut self, value: fn(&mut Self) -> Result<Expression>) -> Result<InValues> {
        if self.is_marker() {
            return self.marker().map(InValues::Marker);
        }
        self.expect(Symbol::LeftParenthesis)?;
        self.comma_separated_until(Symbol::RightParenthesis, value).map(InValues::Values)
    }

    /// The values of IN after a single column.
    pub(super) fn single_column_in_values(&mut self) -> Result<InValues> {
        self.in_values(Self::value)
    }

    /// `(a, b)`
    fn column_names(&mut self) -> Result<Vec<Identifier>> {
        self.expect(Symbol::LeftParenthesis)?;
        let columns = self.comma_separated(Self::column_name)?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(columns)
    }

    /// A comparison operator, if present.
    pub(super) fn comparison(&mut self) -> Option<Comparison> {
        let TokenKind::Symbol(symbol) = self.peek() else { return None };
        let comparison = match symbol {
            Symbol::Equal => Comparison::Equal,
            Symbol::NotEqual => Comparison::NotEqual,
            Symbol::Less => Comparison::Less,
            Symbol::LessOrEqual => Comparison::LessOrEqual,
            Symbol::Greater => Comparison::Greater,
            Symbol::GreaterOrEqual => Comparison::GreaterOrEqual,
            _ => return None,
        };
        self.advance();
        Some(comparison)
    }
}
