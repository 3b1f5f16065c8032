//! The state of the parser: tokens, names, lists, limits, and the errors for unexpected tokens.

use crate::syntax::{
    ast::{FunctionName, Identifier, QualifiedName},
    error::{Position, SyntaxError},
    keyword::{Keyword, KeywordClass},
    lexer::{Symbol, Token, TokenKind, unquote},
};

/// Maximum number of arithmetic operators in one expression, including those in parentheses.
pub(super) const OPERATORS_MAX: usize = 256;

/// Number of tokens that an error shows before and after the unexpected one.
const SNIPPET_TOKENS: usize = 5;

const END: Token = Token { kind: TokenKind::End, start: 0, end: 0 };

pub(super) type Result<T, E = SyntaxError> = std::result::Result<T, E>;

/// The state of the parser. Each method parses the construct that it is named after, at the current token.
pub(super) struct Parser<'a> {
    text: &'a str,
    /// Ends with [`TokenKind::End`], which is never consumed.
    pub(super) tokens: Vec<Token>,
    pub(super) at: usize,
    depth: usize,
    depth_limit: usize,
    operators: usize,
    pub(super) markers: Vec<Option<Identifier>>,
    /// Values may be references to rows with names.
    pub(super) takes_references: bool,
    /// Columns of relations may have the name of their table before them.
    pub(super) takes_qualified_columns: bool,
}

impl<'a> Parser<'a> {
    /// A parser at the first token of `text`.
    pub(super) fn new(text: &'a str, tokens: Vec<Token>, depth_limit: usize) -> Self {
        Self {
            text,
            tokens,
            at: 0,
            depth: 0,
            depth_limit,
            operators: 0,
            markers: Vec::new(),
            takes_references: false,
            takes_qualified_columns: false,
        }
    }

    pub(super) fn token(&self) -> Token {
        self.tokens.get(self.at).copied().unwrap_or(END)
    }

    pub(super) fn peek(&self) -> TokenKind {
        self.token().kind
    }

    /// The kind of the token `offset` places ahead.
    pub(super) fn peek_at(&self, offset: usize) -> TokenKind {
        self.tokens.get(self.at + offset).copied().unwrap_or(END).kind
    }

    pub(super) fn is(&self, symbol: Symbol) -> bool {
        self.peek() == TokenKind::Symbol(symbol)
    }

    pub(super) fn is_at(&self, offset: usize, symbol: Symbol) -> bool {
        self.peek_at(offset) == TokenKind::Symbol(symbol)
    }

    pub(super) fn is_keyword(&self, keyword: Keyword) -> bool {
        self.peek() == TokenKind::Keyword(keyword)
    }

    pub(super) fn is_keyword_at(&self, offset: usize, keyword: Keyword) -> bool {
        self.peek_at(offset) == TokenKind::Keyword(keyword)
    }

    /// Consumes the current token, unless it is the end.
    pub(super) fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    pub(super) fn eat(&mut self, symbol: Symbol) -> bool {
        let found = self.is(symbol);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn eat_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.is_keyword(keyword);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: Symbol) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.mismatched(&format!("'{}'", symbol.text()))) }
    }

    pub(super) fn expect_keyword(&mut self, keyword: Keyword) -> Result<()> {
        if self.eat_keyword(keyword) {
            Ok(())
        } else {
            Err(self.mismatched(&format!("K_{}", keyword.text().to_ascii_uppercase())))
        }
    }

    pub(super) fn expect_end(&mut self) -> Result<()> {
        if self.peek() == TokenKind::End { Ok(()) } else { Err(self.mismatched("EOF")) }
    }

    /// The text of a token as written.
    pub(super) fn text_of(&self, token: Token) -> &'a str {
        debug_assert!(self.text.get(token.span()).is_some(), "tokens lie in their text");
        self.text.get(token.span()).unwrap_or_default()
    }

    /// The text of a quoted token, unescaped.
    pub(super) fn unquoted_text_of(&self, token: Token) -> String {
        unquote(token.kind, self.text_of(token))
    }

    /// A string in either notation.
    pub(super) fn string(&mut self) -> Result<String> {
        match self.peek() {
            TokenKind::String | TokenKind::DollarString => {
                let token = self.advance();
                Ok(self.unquoted_text_of(token))
            }
            _ => Err(self.mismatched("STRING_LITERAL")),
        }
    }

    /// `IF EXISTS`, if present.
    pub(super) fn if_exists(&mut self) -> Result<bool> {
        let found = self.eat_keyword(Keyword::If);
        if found {
            self.expect_keyword(Keyword::Exists)?;
        }
        Ok(found)
    }

    /// `IF NOT EXISTS`, if present.
    pub(super) fn if_not_exists(&mut self) -> Result<bool> {
        let found = self.eat_keyword(Keyword::If);
        if found {
            self.expect_keyword(Keyword::Not)?;
            self.expect_keyword(Keyword::Exists)?;
        }
        Ok(found)
    }

    /// One or more items, separated by commas.
    pub(super) fn comma_separated<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Symbol::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Zero or more items, separated by commas, up to and including the closing symbol.
    pub(super) fn comma_separated_until<T>(
        &mut self,
        close: Symbol,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.eat(close) {
            return Ok(Vec::new());
        }
        let items = self.comma_separated(item)?;
        self.expect(close)?;
        Ok(items)
    }

    /// One or more items, separated by AND.
    pub(super) fn and_separated<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_keyword(Keyword::And) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Parses one nesting level deeper. The operators of an outermost expression are counted together.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= self.depth_limit {
            return Err(SyntaxError::TooDeep { position: self.position(), limit: self.depth_limit });
        }
        if self.depth == 0 {
            self.operators = 0;
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Counts an operator of the current expression.
    pub(super) fn count_operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(SyntaxError::TooManyOperators { position: self.position(), limit: OPERATORS_MAX });
        }
        Ok(())
    }

    /// Parses a part of a transaction whose values may be references.
    pub(super) fn with_references<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = std::mem::replace(&mut self.takes_references, true);
        let result = parse(self);
        self.takes_references = before;
        result
    }

    /// Tries to parse; if that fails, returns to the current token.
    pub(super) fn attempt<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let result = parse(self);
        if result.is_none() {
            self.at = start;
        }
        result
    }

    /// Whether a token is a name: unquoted, quoted or an unreserved keyword.
    pub(super) fn is_name_at(&self, offset: usize) -> bool {
        match self.peek_at(offset) {
            TokenKind::Word | TokenKind::QuotedName => true,
            TokenKind::Keyword(keyword) => keyword.class() != KeywordClass::Reserved,
            _ => false,
        }
    }

    pub(super) fn is_name(&self) -> bool {
        self.is_name_at(0)
    }

    /// Any name except the empty one.
    pub(super) fn name(&mut self) -> Result<Identifier> {
        if !self.is_name() {
            return Err(self.no_viable_alternative());
        }
        let token = self.advance();
        if token.kind != TokenKind::QuotedName {
            return Ok(Identifier::unquoted(self.text_of(token)));
        }
        let name = self.unquoted_text_of(token);
        if name.is_empty() {
            self.at -= 1;
            return Err(self.no_viable_alternative());
        }
        Ok(Identifier::quoted(name))
    }

    /// The name of a column in use, including `""`, which old tables can have.
    pub(super) fn column_name(&mut self) -> Result<Identifier> {
        let token = self.token();
        if token.kind == TokenKind::QuotedName && self.text_of(token).len() == 2 {
            self.advance();
            return Ok(Identifier::quoted(""));
        }
        self.name()
    }

    /// A name that cannot be a bind marker.
    fn unbound_name(&mut self, kind: &str) -> Result<Identifier> {
        if self.is(Symbol::Question) {
            return Err(SyntaxError::Rule(format!("Bind variables cannot be used for {kind} names")));
        }
        self.name()
    }

    pub(super) fn keyspace_name(&mut self) -> Result<Identifier> {
        self.unbound_name("keyspace")
    }

    fn qualified_name(&mut self, kind: &str) -> Result<QualifiedName> {
        let first = self.unbound_name(if self.is_at(1, Symbol::Dot) { "keyspace" } else { kind })?;
        if self.eat(Symbol::Dot) {
            return Ok(QualifiedName { keyspace: Some(first), name: self.unbound_name(kind)? });
        }
        Ok(QualifiedName { keyspace: None, name: first })
    }

    pub(super) fn table_name(&mut self) -> Result<QualifiedName> {
        self.qualified_name("table")
    }

    pub(super) fn index_name(&mut self) -> Result<QualifiedName> {
        self.qualified_name("index")
    }

    /// Whether a token can be the name of a function.
    fn is_function_name_at(&self, offset: usize) -> bool {
        match self.peek_at(offset) {
            TokenKind::Word | TokenKind::QuotedName | TokenKind::Keyword(Keyword::Token | Keyword::Count) => {
                true
            }
            TokenKind::Keyword(keyword) => {
                matches!(keyword.class(), KeywordClass::Unreserved | KeywordClass::Native(_))
            }
            _ => false,
        }
    }

    /// Whether a call of a function starts here.
    pub(super) fn is_function_call(&self) -> bool {
        let is_call_at =
            |offset| self.is_function_name_at(offset) && self.is_at(offset + 1, Symbol::LeftParenthesis);
        is_call_at(0) || (self.is_name() && self.is_at(1, Symbol::Dot) && is_call_at(2))
    }

    /// The name of a function within its keyspace.
    pub(super) fn unqualified_function_name(&mut self) -> Result<Identifier> {
        if !self.is_function_name_at(0) {
            return Err(self.no_viable_alternative());
        }
        match self.peek() {
            TokenKind::Keyword(_) => {
                let token = self.advance();
                Ok(Identifier::unquoted(self.text_of(token)))
            }
            _ => self.name(),
        }
    }

    pub(super) fn function_name(&mut self) -> Result<FunctionName> {
        let keyspace = if self.is_at(1, Symbol::Dot) {
            let keyspace = self.keyspace_name()?;
            self.advance();
            Some(keyspace)
        } else {
            None
        };
        Ok(FunctionName { keyspace, name: self.unqualified_function_name()? })
    }

    pub(super) fn position(&self) -> Position {
        Position::of(self.text, self.error_span().start)
    }

    /// The bytes of the current token; the end of the text for the last one.
    fn error_span(&self) -> std::ops::Range<usize> {
        match self.tokens.get(self.at) {
            Some(token) => token.span(),
            None => self.text.len()..self.text.len(),
        }
    }

    /// The error for a token that no alternative accepts.
    pub(super) fn no_viable_alternative(&self) -> SyntaxError {
        self.token_error(|found| format!("no viable alternative at input '{found}'"))
    }

    /// The error for a token other than the only one expected.
    pub(super) fn mismatched(&self, expected: &str) -> SyntaxError {
        self.token_error(|found| format!("mismatched input '{found}' expecting {expected}"))
    }

    fn token_error(&self, problem: impl FnOnce(&str) -> String) -> SyntaxError {
        let token = self.token();
        let found = match token.kind {
            TokenKind::End => "<EOF>".into(),
            TokenKind::String | TokenKind::DollarString | TokenKind::QuotedName => {
                self.unquoted_text_of(token)
            }
            _ => self.text_of(token).to_owned(),
        };
        SyntaxError::Token { position: self.position(), problem: problem(&found), snippet: self.snippet() }
    }

    /// The text around the current token, which is put in brackets.
    fn snippet(&self) -> String {
        let start = |at: usize| self.tokens.get(at).map_or(self.text.len(), |token| token.start as usize);
        let first = self.at.saturating_sub(SNIPPET_TOKENS);
        let last = (self.at + SNIPPET_TOKENS).min(self.tokens.len().saturating_sub(1));
        let from = start(first);
        let to = self.tokens.get(last).map_or(self.text.len(), |token| token.end as usize);
        let wrong = self.error_span();
        let part = |range: std::ops::Range<usize>| self.text.get(range).unwrap_or_default();
        format!(
            "{}{}[{}]{}{}",
            if first == 0 { "" } else { "..." },
            part(from..wrong.start),
            part(wrong.clone()),
            part(wrong.end..to.max(wrong.end)),
            if to >= self.text.trim_end().len() { "" } else { "..." },
        )
    }
}
