//! Expressions.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{ArithmeticOperator, BindMarker, Expression, Literal, WriteMetadata},
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

/// The clause of an expression. The grammar restricts expressions by clause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    /// A value of INSERT, UPDATE, WHERE, …: no columns, no fields or elements, and no repeated minus.
    Value,
    /// The SELECT list and GROUP BY.
    Selection,
}

impl Parser<'_> {
    /// An expression that does not read the row.
    pub(super) fn value(&mut self) -> Result<Expression> {
        self.expression(Clause::Value)
    }

    /// An expression of the SELECT list or GROUP BY.
    pub(super) fn selector(&mut self) -> Result<Expression> {
        self.expression(Clause::Selection)
    }

    fn expression(&mut self, clause: Clause) -> Result<Expression> {
        self.nested(|parser| parser.sum(clause))
    }

    /// Expressions between commas, up to and including the closing symbol.
    fn expressions_until(&mut self, close: Symbol, clause: Clause) -> Result<Vec<Expression>> {
        self.comma_separated_until(close, |parser| parser.expression(clause))
    }

    fn sum(&mut self, clause: Clause) -> Result<Expression> {
        let mut left = self.product(clause)?;
        loop {
            let operator = match self.peek() {
                TokenKind::Symbol(Symbol::Plus) => ArithmeticOperator::Add,
                TokenKind::Symbol(Symbol::Minus) => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            if clause == Clause::Value && self.is_column_at_next() {
                // `c = value + c`: the rest belongs to the assignment.
                return Ok(left);
            }
            self.advance();
            self.count_operator()?;
            let right = self.product(clause)?;
            left = Expression::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
    }

    /// Whether what follows the current token is the name of a column and not the call of a function.
    fn is_column_at_next(&self) -> bool {
        self.is_name_at(1) && !self.is_at(2, Symbol::LeftParenthesis) && !self.is_at(2, Symbol::Dot)
    }

    fn product(&mut self, clause: Clause) -> Result<Expression> {
        let mut left = self.signed(clause)?;
        while let Some(operator) = self.multiplicative_operator() {
            self.count_operator()?;
            let right = self.signed(clause)?;
            left = Expression::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
        Ok(left)
    }

    fn multiplicative_operator(&mut self) -> Option<ArithmeticOperator> {
        let operator = match self.peek() {
            TokenKind::Symbol(Symbol::Star) => ArithmeticOperator::Multiply,
            TokenKind::Symbol(Symbol::Slash) => ArithmeticOperator::Divide,
            TokenKind::Symbol(Symbol::Percent) => ArithmeticOperator::Modulo,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    fn signed(&mut self, clause: Clause) -> Result<Expression> {
        let is_negated = self.eat(Symbol::Minus);
        match (clause, is_negated) {
            (Clause::Value, true) => {
                self.primary(clause).map(|operand| Expression::Negation(Box::new(operand)))
            }
            (Clause::Value, false) => self.primary(clause),
            (Clause::Selection, true) => {
                let operand = self.nested(|parser| parser.signed(clause))?;
                Ok(Expression::Negation(Box::new(operand)))
            }
            (Clause::Selection, false) => {
                let operand = self.primary(clause)?;
                self.modified(operand)
            }
        }
    }

    /// Fields, elements and slices of an expression.
    fn modified(&mut self, mut operand: Expression) -> Result<Expression> {
        loop {
            if self.eat(Symbol::Dot) {
                self.count_operator()?;
                operand = Expression::Field { operand: Box::new(operand), field: self.name()? };
            } else if self.eat(Symbol::LeftBracket) {
                self.count_operator()?;
                operand = self.element_or_slice(Box::new(operand))?;
                self.expect(Symbol::RightBracket)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn element_or_slice(&mut self, operand: Box<Expression>) -> Result<Expression> {
        if self.eat(Symbol::Range) {
            return Ok(Expression::Slice { operand, from: None, to: Some(Box::new(self.value()?)) });
        }
        let key = Box::new(self.value()?);
        if !self.eat(Symbol::Range) {
            return Ok(Expression::Element { operand, key });
        }
        let to = if self.is(Symbol::RightBracket) { None } else { Some(Box::new(self.value()?)) };
        Ok(Expression::Slice { operand, from: Some(key), to })
    }

    /// An expression without operators at its top, unless it is in parentheses.
    fn primary(&mut self, clause: Clause) -> Result<Expression> {
        if let Some(literal) = self.literal() {
            return Ok(Expression::Literal(literal));
        }
        match self.peek() {
            TokenKind::Symbol(Symbol::Question | Symbol::Colon) => self.marker().map(Expression::Marker),
            TokenKind::Symbol(Symbol::LeftBracket) => {
                self.advance();
                self.expressions_until(Symbol::RightBracket, clause).map(Expression::List)
            }
            TokenKind::Symbol(Symbol::LeftBrace) => self.braces(clause),
            TokenKind::Symbol(Symbol::LeftParenthesis) => {
                match self.type_hint(|parser| parser.starts_operand(clause)) {
                    Some(type_name) => {
                        let operand = Box::new(self.nested(|parser| parser.primary(clause))?);
                        Ok(Expression::TypeHint { type_name, operand })
                    }
                    None => self.tuple(clause),
                }
            }
            TokenKind::Keyword(Keyword::Cast) if self.is_at(1, Symbol::LeftParenthesis) => self.cast(clause),
            TokenKind::Keyword(keyword)
                if clause == Clause::Selection && self.is_at(1, Symbol::LeftParenthesis) =>
            {
                self.keyword_function(keyword)
            }
            _ if self.is_function_call() => self.function(clause),
            _ if self.is_reference(clause) => self.row_reference().map(Expression::Reference),
            _ if clause == Clause::Selection => self.name().map(Expression::Column),
            _ => Err(self.no_viable_alternative()),
        }
    }

    /// Whether a reference to a value of a row with a name starts here.
    fn is_reference(&self, clause: Clause) -> bool {
        self.takes_references && clause == Clause::Value && self.is_name() && self.is_at(1, Symbol::Dot)
    }

    /// Whether the operand of a type hint can start here.
    fn starts_operand(&self, clause: Clause) -> bool {
        match self.peek() {
            TokenKind::Symbol(symbol) => matches!(
                symbol,
                Symbol::Question
                    | Symbol::Colon
                    | Symbol::LeftBracket
                    | Symbol::LeftBrace
                    | Symbol::LeftParenthesis
            ),
            // `(a) AS b` is an expression in parentheses with an alias.
            TokenKind::Keyword(Keyword::As) if clause == Clause::Selection => false,
            TokenKind::Keyword(Keyword::Cast) if self.is_at(1, Symbol::LeftParenthesis) => true,
            _ => {
                self.is_literal()
                    || self.is_function_call()
                    || self.is_reference(clause)
                    || (clause == Clause::Selection && self.is_name())
            }
        }
    }

    /// A call of a function that has a keyword for its name, in the SELECT list.
    fn keyword_function(&mut self, keyword: Keyword) -> Result<Expression> {
        let kind = match keyword {
            Keyword::Count if self.is_at(2, Symbol::Star) && self.is_at(3, Symbol::RightParenthesis) => {
                for _ in 0..4 {
                    self.advance();
                }
                return Ok(Expression::CountRows);
            }
            Keyword::Writetime => WriteMetadata::Writetime,
            Keyword::Maxwritetime => WriteMetadata::MaxWritetime,
            Keyword::Ttl => WriteMetadata::Ttl,
            _ => return self.function(Clause::Selection),
        };
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let column = Expression::Column(self.name()?);
        let target = Box::new(self.nested(|parser| parser.modified(column))?);
        self.expect(Symbol::RightParenthesis)?;
        Ok(Expression::WriteMetadata { kind, target })
    }

    fn cast(&mut self, clause: Clause) -> Result<Expression> {
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let operand = match clause {
            Clause::Value => self.nested(|parser| parser.primary(clause))?,
            Clause::Selection => self.expression(clause)?,
        };
        self.expect_keyword(Keyword::As)?;
        let target = self.native_type()?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(Expression::Cast { operand: Box::new(operand), target })
    }

    fn function(&mut self, clause: Clause) -> Result<Expression> {
        let name = self.function_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let arguments = self.expressions_until(Symbol::RightParenthesis, clause)?;
        Ok(Expression::Function { name, arguments })
    }

    /// A set, a map or a value of a user type.
    fn braces(&mut self, clause: Clause) -> Result<Expression> {
        self.advance();
        if self.eat(Symbol::RightBrace) {
            return Ok(Expression::Set(Vec::new()));
        }
        // Without columns, the first key distinguishes a user type from a map.
        let has_fields = clause == Clause::Value && self.is_name() && self.is_at(1, Symbol::Colon);
        let key = |parser: &mut Self| {
            if has_fields { parser.name().map(Expression::Column) } else { parser.expression(clause) }
        };
        let first = key(self)?;
        let value = if self.eat(Symbol::Colon) {
            let mut entries = vec![(first, self.expression(clause)?)];
            while self.eat(Symbol::Comma) {
                let key = key(self)?;
                self.expect(Symbol::Colon)?;
                entries.push((key, self.expression(clause)?));
            }
            Expression::MapOrUserType(entries)
        } else {
            let mut elements = vec![first];
            while self.eat(Symbol::Comma) {
                elements.push(self.expression(clause)?);
            }
            Expression::Set(elements)
        };
        self.expect(Symbol::RightBrace)?;
        Ok(value)
    }

    /// `(a, b)`
    fn tuple(&mut self, clause: Clause) -> Result<Expression> {
        self.expect(Symbol::LeftParenthesis)?;
        let elements = self.comma_separated(|parser| parser.expression(clause))?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(Expression::Tuple(elements))
    }

    /// `(a, b)`, of expressions that do not read the row.
    pub(super) fn tuple_value(&mut self) -> Result<Expression> {
        self.tuple(Clause::Value)
    }

    pub(super) fn is_marker(&self) -> bool {
        self.is(Symbol::Question) || self.is(Symbol::Colon)
    }

    pub(super) fn marker(&mut self) -> Result<BindMarker> {
        let name = if self.eat(Symbol::Question) {
            None
        } else {
            self.expect(Symbol::Colon)?;
            Some(self.name()?)
        };
        let index = self.markers.len();
        self.markers.push(name.clone());
        Ok(BindMarker { index, name })
    }

    /// An integer or a marker.
    pub(super) fn integer_or_marker(&mut self) -> Result<Expression> {
        self.literal_or_marker(TokenKind::Integer)
    }

    /// A literal of one kind, or a marker.
    pub(super) fn literal_or_marker(&mut self, kind: TokenKind) -> Result<Expression> {
        if self.is_marker() {
            return self.marker().map(Expression::Marker);
        }
        if self.peek() == kind
            && let Some(literal) = self.literal()
        {
            return Ok(Expression::Literal(literal));
        }
        Err(self.no_viable_alternative())
    }

    pub(super) fn is_literal(&self) -> bool {
        match self.peek() {
            TokenKind::Keyword(keyword) => {
                matches!(
                    keyword,
                    Keyword::True | Keyword::False | Keyword::Null | Keyword::Nan | Keyword::Infinity
                )
            }
            TokenKind::Word | TokenKind::QuotedName | TokenKind::Symbol(_) | TokenKind::End => false,
            TokenKind::String
            | TokenKind::DollarString
            | TokenKind::Integer
            | TokenKind::Float
            | TokenKind::Duration
            | TokenKind::Uuid
            | TokenKind::Blob
            | TokenKind::NegativeNan
            | TokenKind::NegativeInfinity => true,
        }
    }

    /// A constant, if present.
    pub(super) fn literal(&mut self) -> Option<Literal> {
        if !self.is_literal() {
            return None;
        }
        let token = self.advance();
        let text = || self.text_of(token).to_owned();
        Some(match token.kind {
            TokenKind::Integer => Literal::Integer(text()),
            TokenKind::Float => Literal::Float(text()),
            TokenKind::Duration => Literal::Duration(text()),
            TokenKind::Uuid => Literal::Uuid(text()),
            TokenKind::Blob => Literal::Blob(self.text_of(token).get(2..).unwrap_or_default().to_owned()),
            TokenKind::NegativeNan | TokenKind::Keyword(Keyword::Nan) => Literal::Float("NaN".into()),
            TokenKind::NegativeInfinity => Literal::Float("-Infinity".into()),
            TokenKind::Keyword(Keyword::Infinity) => Literal::Float("Infinity".into()),
            TokenKind::Keyword(Keyword::True) => Literal::Boolean(true),
            TokenKind::Keyword(Keyword::False) => Literal::Boolean(false),
            TokenKind::Keyword(_) => Literal::Null,
            _ => Literal::String(self.unquoted_text_of(token)),
        })
    }
}
