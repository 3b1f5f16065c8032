//! EXPLAIN. Its words are no keywords: they are names everywhere else.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{Explain, Statement},
    error::SyntaxError,
    keyword::Keyword,
    lexer::TokenKind,
};

impl Parser<'_> {
    /// Whether the present token is this word, which is no keyword.
    fn is_word(&self, word: &str) -> bool {
        let token = self.token();
        token.kind == TokenKind::Word && self.text_of(token).eq_ignore_ascii_case(word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    /// Whether the statement is an EXPLAIN.
    pub(super) fn is_explain(&self) -> bool {
        self.is_word("explain")
    }

    pub(super) fn explain(&mut self) -> Result<Statement> {
        self.advance();
        let analyze = self.eat_word("analyze");
        let json = self.eat_word("format");
        if json {
            self.expect_keyword(Keyword::Json)?;
        }
        let statement = match self.peek() {
            TokenKind::Keyword(Keyword::Select) => Statement::Select(self.select()?),
            TokenKind::Keyword(Keyword::Insert) => Statement::Insert(self.insert()?),
            TokenKind::Keyword(Keyword::Update) => Statement::Update(self.update()?),
            TokenKind::Keyword(Keyword::Delete) => Statement::Delete(self.delete()?),
            TokenKind::Keyword(Keyword::Begin) if self.begins_transaction() => {
                return Err(SyntaxError::Rule("EXPLAIN is not possible of BEGIN TRANSACTION".to_owned()));
            }
            TokenKind::Keyword(Keyword::Begin) => Statement::Batch(self.batch()?),
            _ => return Err(self.no_viable_alternative()),
        };
        Ok(Statement::Explain(Explain { analyze, json, statement: Box::new(statement) }))
    }
}
