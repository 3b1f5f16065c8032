//! Selectors: values computed from a row.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{ArithmeticOperator, Selector, WriteMetadata},
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn selector(&mut self) -> Result<Selector> {
        self.nested(Self::selector_addition)
    }

    fn selector_addition(&mut self) -> Result<Selector> {
        let mut left = self.selector_multiplication()?;
        loop {
            let operator = match self.peek() {
                TokenKind::Symbol(Symbol::Plus) => ArithmeticOperator::Add,
                TokenKind::Symbol(Symbol::Minus) => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            self.advance();
            self.count_operator()?;
            let right = self.selector_multiplication()?;
            left = Selector::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
    }

    fn selector_multiplication(&mut self) -> Result<Selector> {
        let mut left = self.signed_selector()?;
        while let Some(operator) = self.multiplicative_operator() {
            self.count_operator()?;
            let right = self.signed_selector()?;
            left = Selector::Arithmetic { left: Box::new(left), operator, right: Box::new(right) };
        }
        Ok(left)
    }

    fn signed_selector(&mut self) -> Result<Selector> {
        if self.eat(Symbol::Minus) {
            return Ok(Selector::Negation(Box::new(self.nested(Self::signed_selector)?)));
        }
        let selector = self.simple_selector()?;
        self.modified(selector)
    }

    /// Fields, elements and slices of a selector.
    fn modified(&mut self, mut selector: Selector) -> Result<Selector> {
        loop {
            if self.eat(Symbol::Dot) {
                self.count_operator()?;
                selector = Selector::Field { selector: Box::new(selector), field: self.name()? };
            } else if self.eat(Symbol::LeftBracket) {
                self.count_operator()?;
                selector = self.element_or_slice(Box::new(selector))?;
                self.expect(Symbol::RightBracket)?;
            } else {
                return Ok(selector);
            }
        }
    }

    fn element_or_slice(&mut self, selector: Box<Selector>) -> Result<Selector> {
        if self.eat(Symbol::Range) {
            return Ok(Selector::Slice { selector, from: None, to: Some(self.term()?) });
        }
        let key = self.term()?;
        if !self.eat(Symbol::Range) {
            return Ok(Selector::Element { selector, key });
        }
        let to = if self.is(Symbol::RightBracket) { None } else { Some(self.term()?) };
        Ok(Selector::Slice { selector, from: Some(key), to })
    }

    fn simple_selector(&mut self) -> Result<Selector> {
        if let Some(literal) = self.literal() {
            return Ok(Selector::Literal(literal));
        }
        match self.peek() {
            TokenKind::Symbol(Symbol::Question | Symbol::Colon) => self.marker().map(Selector::Marker),
            TokenKind::Symbol(Symbol::LeftBracket) => {
                self.advance();
                self.comma_separated_until(Symbol::RightBracket, Self::selector).map(Selector::List)
            }
            TokenKind::Symbol(Symbol::LeftBrace) => self.selector_braces(),
            TokenKind::Symbol(Symbol::LeftParenthesis) => {
                if let Some(type_name) = self.type_hint(Self::starts_simple_selector) {
                    let selector = Box::new(self.nested(Self::simple_selector)?);
                    return Ok(Selector::TypeHint { type_name, selector });
                }
                self.advance();
                let elements = self.comma_separated(Self::selector)?;
                self.expect(Symbol::RightParenthesis)?;
                Ok(Selector::Tuple(elements))
            }
            TokenKind::Keyword(keyword) if self.is_at(1, Symbol::LeftParenthesis) => {
                self.keyword_function(keyword)
            }
            _ if self.is_function_call() => self.function_selector(),
            _ => self.name().map(Selector::Column),
        }
    }

    /// What can follow a type hint.
    fn starts_simple_selector(&self) -> bool {
        match self.peek() {
            TokenKind::Symbol(symbol) => matches!(
                symbol,
                Symbol::Question
                    | Symbol::Colon
                    | Symbol::LeftBracket
                    | Symbol::LeftBrace
                    | Symbol::LeftParenthesis
            ),
            // `(a) AS b` is a selector in parentheses with an alias.
            TokenKind::Keyword(Keyword::As | Keyword::From) | TokenKind::End => false,
            TokenKind::Keyword(Keyword::Token) => true,
            TokenKind::Keyword(_) => self.is_literal() || self.is_name(),
            _ => true,
        }
    }

    /// A call of a function that has a keyword for its name.
    fn keyword_function(&mut self, keyword: Keyword) -> Result<Selector> {
        let kind = match keyword {
            Keyword::Count if self.is_at(2, Symbol::Star) && self.is_at(3, Symbol::RightParenthesis) => {
                for _ in 0..4 {
                    self.advance();
                }
                return Ok(Selector::CountRows);
            }
            Keyword::Cast => return self.cast_selector(),
            Keyword::Writetime => WriteMetadata::Writetime,
            Keyword::Maxwritetime => WriteMetadata::MaxWritetime,
            Keyword::Ttl => WriteMetadata::Ttl,
            _ => return self.function_selector(),
        };
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let column = Selector::Column(self.name()?);
        let target = Box::new(self.nested(|parser| parser.modified(column))?);
        self.expect(Symbol::RightParenthesis)?;
        Ok(Selector::WriteMetadata { kind, target })
    }

    fn cast_selector(&mut self) -> Result<Selector> {
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let selector = Box::new(self.selector()?);
        self.expect_keyword(Keyword::As)?;
        let target = self.native_type()?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(Selector::Cast { selector, target })
    }

    fn function_selector(&mut self) -> Result<Selector> {
        let name = self.function_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let arguments = self.comma_separated_until(Symbol::RightParenthesis, Self::selector)?;
        Ok(Selector::Function { name, arguments })
    }

    /// A set, a map or a value of a user type.
    fn selector_braces(&mut self) -> Result<Selector> {
        self.advance();
        if self.eat(Symbol::RightBrace) {
            return Ok(Selector::Set(Vec::new()));
        }
        let first = self.selector()?;
        let value = if self.eat(Symbol::Colon) {
            let mut entries = vec![(first, self.selector()?)];
            while self.eat(Symbol::Comma) {
                let key = self.selector()?;
                self.expect(Symbol::Colon)?;
                entries.push((key, self.selector()?));
            }
            Selector::MapOrUserType(entries)
        } else {
            let mut elements = vec![first];
            while self.eat(Symbol::Comma) {
                elements.push(self.selector()?);
            }
            Selector::Set(elements)
        };
        self.expect(Symbol::RightBrace)?;
        Ok(value)
    }
}
