//! Types.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{CqlTypeName, Identifier, NativeType, QualifiedName},
    error::SyntaxError,
    keyword::{Keyword, KeywordClass, RESERVED_TYPE_NAMES},
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    pub(super) fn type_name(&mut self) -> Result<CqlTypeName> {
        self.nested(|parser| {
            if matches!(parser.peek(), TokenKind::String | TokenKind::DollarString) {
                return parser.string().map(CqlTypeName::Custom);
            }
            if let TokenKind::Keyword(keyword) = parser.peek() {
                if let (KeywordClass::Native(native), false) = (keyword.class(), parser.is_at(1, Symbol::Dot))
                {
                    parser.advance();
                    return Ok(CqlTypeName::Native(native));
                }
                if parser.is_at(1, Symbol::Less) {
                    return parser.parameterized_type(keyword);
                }
            }
            parser.user_type_name().map(CqlTypeName::User)
        })
    }

    /// `list<…>` and the like.
    fn parameterized_type(&mut self, keyword: Keyword) -> Result<CqlTypeName> {
        if !matches!(
            keyword,
            Keyword::Map | Keyword::List | Keyword::Set | Keyword::Tuple | Keyword::Vector | Keyword::Frozen
        ) {
            return Err(self.no_viable_alternative());
        }
        self.advance();
        self.expect(Symbol::Less)?;
        let type_name = match keyword {
            Keyword::Map => {
                let key = self.type_name()?;
                self.expect(Symbol::Comma)?;
                CqlTypeName::Map(Box::new(key), Box::new(self.type_name()?))
            }
            Keyword::List => CqlTypeName::List(Box::new(self.type_name()?)),
            Keyword::Set => CqlTypeName::Set(Box::new(self.type_name()?)),
            Keyword::Tuple => CqlTypeName::Tuple(self.comma_separated(Self::type_name)?),
            Keyword::Vector => {
                let element = self.type_name()?;
                self.expect(Symbol::Comma)?;
                CqlTypeName::Vector(Box::new(element), self.dimensions()?)
            }
            _ => CqlTypeName::Frozen(Box::new(self.type_name()?)),
        };
        self.expect(Symbol::Greater)?;
        Ok(type_name)
    }

    fn dimensions(&mut self) -> Result<u32> {
        if self.peek() != TokenKind::Integer {
            return Err(self.mismatched("INTEGER"));
        }
        let token = self.advance();
        let text = self.text_of(token);
        text.parse().map_err(|_| {
            SyntaxError::Rule(if text.starts_with('-') {
                format!("vectors may only have positive dimensions; given {text}")
            } else {
                format!("the dimension of a vector must fit into 32 bits; given {text}")
            })
        })
    }

    pub(super) fn native_type(&mut self) -> Result<NativeType> {
        if let TokenKind::Keyword(keyword) = self.peek()
            && let KeywordClass::Native(native) = keyword.class()
        {
            self.advance();
            return Ok(native);
        }
        Err(self.no_viable_alternative())
    }

    pub(super) fn user_type_name(&mut self) -> Result<QualifiedName> {
        let keyspace = if self.is_at(1, Symbol::Dot) {
            let keyspace = self.name()?;
            self.advance();
            Some(keyspace)
        } else {
            None
        };
        Ok(QualifiedName { keyspace, name: self.unqualified_user_type_name()? })
    }

    fn unqualified_user_type_name(&mut self) -> Result<Identifier> {
        match self.peek() {
            TokenKind::Keyword(Keyword::Key) => {}
            TokenKind::Keyword(keyword) if keyword.class() != KeywordClass::Unreserved => {
                return Err(self.no_viable_alternative());
            }
            TokenKind::Word => {
                let word = self.text_of(self.token());
                if RESERVED_TYPE_NAMES.contains(&word.to_ascii_lowercase().as_str()) {
                    return Err(SyntaxError::Rule(format!("Invalid (reserved) user type name {word}")));
                }
            }
            _ => {}
        }
        self.name()
    }

    /// `(type)`, if an operand follows it.
    pub(super) fn type_hint(&mut self, starts_value: impl FnOnce(&Self) -> bool) -> Option<CqlTypeName> {
        let may_start_type = match self.peek_at(1) {
            TokenKind::String | TokenKind::DollarString => self.is_at(2, Symbol::RightParenthesis),
            TokenKind::Keyword(Keyword::Set) => true,
            _ => self.is_name_at(1),
        };
        if !may_start_type {
            return None;
        }
        self.attempt(|parser| {
            parser.advance();
            let type_name = parser.type_name().ok()?;
            (parser.eat(Symbol::RightParenthesis) && starts_value(parser)).then_some(type_name)
        })
    }
}
