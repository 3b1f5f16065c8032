//! `BEGIN TRANSACTION`. Its words TRANSACTION, LET, THEN, END and COMMIT are no keywords: they remain free as names.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        Expression, Modification, NamedRow, Place, ReferencePart, Returning, RowReference, Transaction,
        TransactionCondition,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    /// Whether `BEGIN` begins a transaction, and not a batch.
    pub(super) fn begins_transaction(&self) -> bool {
        self.is_word_at(1, "transaction")
    }

    pub(super) fn transaction(&mut self) -> Result<Transaction> {
        self.advance();
        self.advance();
        let token = self.eat_keyword(Keyword::Using).then(|| self.transaction_token()).transpose()?;
        let mut rows = Vec::new();
        while self.is_word_at(0, "let") {
            rows.push(self.named_row()?);
        }
        let returning = if self.is_keyword(Keyword::Select) { Some(self.returning()?) } else { None };
        let is_conditional = self.eat_keyword(Keyword::If);
        let conditions = if is_conditional {
            let conditions =
                self.with_references(|parser| parser.and_separated(Self::transaction_condition))?;
            self.expect_word("then")?;
            conditions
        } else {
            Vec::new()
        };
        let mut modifications = Vec::new();
        loop {
            let place = self.place();
            let modification = match self.peek() {
                TokenKind::Keyword(Keyword::Insert) => Modification::Insert(self.insert_of_transaction()?),
                TokenKind::Keyword(Keyword::Update) => Modification::Update(self.update_of_transaction()?),
                TokenKind::Keyword(Keyword::Delete) => Modification::Delete(self.delete()?),
                _ => break,
            };
            self.expect(Symbol::Semicolon)?;
            modifications.push((modification, place));
        }
        if is_conditional {
            self.expect_word("end")?;
            self.expect_keyword(Keyword::If)?;
        }
        self.expect_word("commit")?;
        self.expect_word("transaction")?;
        Ok(Transaction {
            token,
            rows,
            returning,
            conditions,
            modifications,
            marker_count: self.markers.len(),
        })
    }

    /// `TOKEN …`, behind USING.
    fn transaction_token(&mut self) -> Result<Expression> {
        if !self.eat_keyword(Keyword::Token) {
            return Err(SyntaxError::Rule("BEGIN TRANSACTION takes USING TOKEN only".to_owned()));
        }
        match self.value()? {
            token @ (Expression::Literal(_) | Expression::Marker(_)) => Ok(token),
            _ => Err(SyntaxError::Rule("The token of a transaction is a constant or a marker".to_owned())),
        }
    }

    /// `LET name = (SELECT …);`
    fn named_row(&mut self) -> Result<NamedRow> {
        self.advance();
        let name = self.name()?;
        self.expect(Symbol::Equal)?;
        self.expect(Symbol::LeftParenthesis)?;
        if !self.is_keyword(Keyword::Select) {
            return Err(self.mismatched("K_SELECT"));
        }
        let place = self.place();
        let select = self.select()?;
        self.expect(Symbol::RightParenthesis)?;
        self.expect(Symbol::Semicolon)?;
        Ok(NamedRow { name, select, place })
    }

    /// `SELECT … FROM …;` or `SELECT row.column, …;`
    fn returning(&mut self) -> Result<Returning> {
        let place = self.place();
        let mut kinds = (0..).map(|offset| self.peek_at(offset));
        let first_end = kinds.find(|kind| {
            matches!(
                kind,
                TokenKind::Symbol(Symbol::Semicolon) | TokenKind::Keyword(Keyword::From) | TokenKind::End
            )
        });
        let returning = if first_end == Some(TokenKind::Symbol(Symbol::Semicolon)) {
            self.advance();
            Returning::References(self.comma_separated(Self::row_reference)?)
        } else {
            Returning::Select { select: Box::new(self.select()?), place }
        };
        self.expect(Symbol::Semicolon)?;
        Ok(returning)
    }

    fn transaction_condition(&mut self) -> Result<TransactionCondition> {
        let left = if self.is_name() && !self.is_function_call() {
            let reference = self.row_reference()?;
            if self.eat_keyword(Keyword::Is) {
                let negated = self.eat_keyword(Keyword::Not);
                self.expect_keyword(Keyword::Null)?;
                return Ok(TransactionCondition::IsNull { reference, negated });
            }
            Expression::Reference(reference)
        } else {
            self.value()?
        };
        let Some(operator) = self.comparison() else { return Err(self.no_viable_alternative()) };
        let right = if self.is_name() && !self.is_function_call() {
            Expression::Reference(self.row_reference()?)
        } else if matches!(left, Expression::Reference(_)) {
            self.value()?
        } else {
            return Err(self.no_viable_alternative());
        };
        Ok(TransactionCondition::Compare { left, operator, right })
    }

    /// `row`, `row.column`, `row.column[key]` or `row.column.field`
    pub(super) fn row_reference(&mut self) -> Result<RowReference> {
        let row = self.name()?;
        if !self.eat(Symbol::Dot) {
            return Ok(RowReference { row, column: None, part: None });
        }
        let column = Some(self.name()?);
        let part = if self.eat(Symbol::LeftBracket) {
            let key = Box::new(self.value()?);
            self.expect(Symbol::RightBracket)?;
            Some(ReferencePart::Element(key))
        } else if self.eat(Symbol::Dot) {
            Some(ReferencePart::Field(self.name()?))
        } else {
            None
        };
        Ok(RowReference { row, column, part })
    }

    /// Where the next token stands.
    fn place(&self) -> Place {
        let position = self.position();
        Place { line: position.line, column: position.column + 1 }
    }

    /// Whether a token is this word, which is no keyword.
    pub(super) fn is_word_at(&self, offset: usize, word: &str) -> bool {
        self.tokens.get(self.at + offset).is_some_and(|token| {
            token.kind == TokenKind::Word && self.text_of(*token).eq_ignore_ascii_case(word)
        })
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        if !self.is_word_at(0, word) {
            return Err(self.mismatched(&format!("K_{}", word.to_ascii_uppercase())));
        }
        self.advance();
        Ok(())
    }
}
