//! Terms: values that do not depend on a row.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{ArithmeticOperator, BindMarker, Literal, Term},
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn term(&mut self) -> Result<Term> {
        self.nested(Self::term_addition)
    }

    fn term_addition(&mut self) -> Result<Term> {
        let mut left = self.term_multiplication()?;
        loop {
            let operator = match self.peek() {
                TokenKind::Symbol(Symbol::Plus) => ArithmeticOperator::Add,
                TokenKind::Symbol(Symbol::Minus) => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            if self.is_column_at_next() {
                // `c = value + c`: the rest belongs to the assignment.
                return Ok(left);
            }
            self.advance();
            self.count_operator()?;
            let right = self.term_multiplication()?;
            left = Term::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
    }

    /// Whether what follows the current token is the name of a column and not the call of a function.
    fn is_column_at_next(&self) -> bool {
        self.is_name_at(1) && !self.is_at(2, Symbol::LeftParenthesis) && !self.is_at(2, Symbol::Dot)
    }

    fn term_multiplication(&mut self) -> Result<Term> {
        let mut left = self.signed_term()?;
        while let Some(operator) = self.multiplicative_operator() {
            self.count_operator()?;
            let right = self.signed_term()?;
            left = Term::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
        Ok(left)
    }

    pub(super) fn multiplicative_operator(&mut self) -> Option<ArithmeticOperator> {
        let operator = match self.peek() {
            TokenKind::Symbol(Symbol::Star) => ArithmeticOperator::Multiply,
            TokenKind::Symbol(Symbol::Slash) => ArithmeticOperator::Divide,
            TokenKind::Symbol(Symbol::Percent) => ArithmeticOperator::Modulo,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    fn signed_term(&mut self) -> Result<Term> {
        if self.eat(Symbol::Minus) {
            return Ok(Term::Negation(Box::new(self.simple_term()?)));
        }
        self.simple_term()
    }

    fn simple_term(&mut self) -> Result<Term> {
        if let Some(literal) = self.literal() {
            return Ok(Term::Literal(literal));
        }
        match self.peek() {
            TokenKind::Symbol(Symbol::Question | Symbol::Colon) => self.marker().map(Term::Marker),
            TokenKind::Symbol(Symbol::LeftBracket) => {
                self.advance();
                self.comma_separated_until(Symbol::RightBracket, Self::term).map(Term::List)
            }
            TokenKind::Symbol(Symbol::LeftBrace) => self.braces(),
            TokenKind::Symbol(Symbol::LeftParenthesis) => match self.type_hint(Self::starts_simple_term) {
                Some(type_name) => {
                    let term = Box::new(self.nested(Self::simple_term)?);
                    Ok(Term::TypeHint { type_name, term })
                }
                None => self.tuple(),
            },
            TokenKind::Keyword(Keyword::Cast) if self.is_at(1, Symbol::LeftParenthesis) => self.cast_term(),
            _ if self.is_function_call() => {
                let name = self.function_name()?;
                self.expect(Symbol::LeftParenthesis)?;
                let arguments = self.comma_separated_until(Symbol::RightParenthesis, Self::term)?;
                Ok(Term::Function { name, arguments })
            }
            _ => Err(self.no_viable_alternative()),
        }
    }

    fn cast_term(&mut self) -> Result<Term> {
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let term = Box::new(self.nested(Self::simple_term)?);
        self.expect_keyword(Keyword::As)?;
        let target = self.native_type()?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(Term::Cast { term, target })
    }

    fn starts_simple_term(&self) -> bool {
        match self.peek() {
            TokenKind::Symbol(symbol) => matches!(
                symbol,
                Symbol::Question
                    | Symbol::Colon
                    | Symbol::LeftBracket
                    | Symbol::LeftBrace
                    | Symbol::LeftParenthesis
            ),
            TokenKind::Keyword(Keyword::Cast) => self.is_at(1, Symbol::LeftParenthesis),
            _ => self.is_literal() || self.is_function_call(),
        }
    }

    /// A set, a map or a value of a user type.
    fn braces(&mut self) -> Result<Term> {
        self.advance();
        if self.eat(Symbol::RightBrace) {
            return Ok(Term::Set(Vec::new()));
        }
        if self.is_name() && self.is_at(1, Symbol::Colon) {
            let fields = self.comma_separated(|parser| {
                let field = parser.name()?;
                parser.expect(Symbol::Colon)?;
                Ok((field, parser.term()?))
            })?;
            self.expect(Symbol::RightBrace)?;
            return Ok(Term::UserType(fields));
        }
        let first = self.term()?;
        let value = if self.eat(Symbol::Colon) {
            let mut entries = vec![(first, self.term()?)];
            while self.eat(Symbol::Comma) {
                let key = self.term()?;
                self.expect(Symbol::Colon)?;
                entries.push((key, self.term()?));
            }
            Term::Map(entries)
        } else {
            let mut elements = vec![first];
            while self.eat(Symbol::Comma) {
                elements.push(self.term()?);
            }
            Term::Set(elements)
        };
        self.expect(Symbol::RightBrace)?;
        Ok(value)
    }

    /// `(a, b)`
    pub(super) fn tuple(&mut self) -> Result<Term> {
        self.expect(Symbol::LeftParenthesis)?;
        let elements = self.comma_separated(Self::term)?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(Term::Tuple(elements))
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
    pub(super) fn integer_or_marker(&mut self) -> Result<Term> {
        self.literal_or_marker(TokenKind::Integer)
    }

    /// A literal of one kind, or a marker.
    pub(super) fn literal_or_marker(&mut self, kind: TokenKind) -> Result<Term> {
        if self.is_marker() {
            return self.marker().map(Term::Marker);
        }
        if self.peek() == kind
            && let Some(literal) = self.literal()
        {
            return Ok(Term::Literal(literal));
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

    /// A constant, if one stands here.
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
