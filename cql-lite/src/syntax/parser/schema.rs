//! Keyspaces, types, indexes, functions, aggregates, triggers; properties.

use super::cursor::{Parser, Result};
use crate::syntax::{
    ast::{
        AlterKeyspace, AlterType, AlterTypeOperation, CqlTypeName, CreateAggregate, CreateFunction,
        CreateIndex, CreateKeyspace, CreateTrigger, CreateType, DropFunction, DropIndex, DropKeyspace,
        DropTrigger, DropType, Expression, Identifier, IndexTarget, Literal, Property, PropertyValue,
        Statement,
    },
    error::SyntaxError,
    keyword::Keyword,
    lexer::{Symbol, TokenKind},
};

impl Parser<'_> {
    /// `WITH property AND …`
    pub(super) fn with_properties(&mut self) -> Result<Vec<Property>> {
        self.expect_keyword(Keyword::With)?;
        let mut properties = Vec::new();
        self.and_separated(|parser| {
            let property = parser.property(&properties)?;
            properties.push(property);
            Ok(())
        })?;
        Ok(properties)
    }

    /// `name = value`. The names in `before` must not repeat.
    pub(super) fn property(&mut self, before: &[Property]) -> Result<Property> {
        let name = self.name()?;
        self.expect(Symbol::Equal)?;
        let value = if self.is(Symbol::LeftBrace) {
            PropertyValue::Map(self.property_map()?)
        } else if self.is_keyword(Keyword::Null) {
            return Err(self.no_viable_alternative());
        } else if let Some(literal) = self.literal() {
            PropertyValue::Literal(literal)
        } else if matches!(self.peek(), TokenKind::Keyword(_)) && self.is_name() {
            PropertyValue::Literal(Literal::String(self.name()?.into_string()))
        } else {
            return Err(self.no_viable_alternative());
        };
        if before.iter().any(|property| property.name == name) {
            return Err(SyntaxError::Rule(format!("Multiple definitions for property '{}'", name.as_str())));
        }
        Ok(Property { name, value })
    }

    /// `{key: value, …}` of constants.
    pub(super) fn property_map(&mut self) -> Result<Vec<(Literal, Literal)>> {
        self.expect(Symbol::LeftBrace)?;
        let mut entries: Vec<(Literal, Literal)> = Vec::new();
        if self.eat(Symbol::RightBrace) {
            return Ok(entries);
        }
        self.comma_separated(|parser| {
            let key = parser.value()?;
            parser.expect(Symbol::Colon)?;
            let value = parser.value()?;
            let key = constant(key).map_err(|key| {
                SyntaxError::Rule(format!("Invalid property name: {key}{}", bind_variable_hint(&key)))
            })?;
            let value = constant(value).map_err(|value| {
                let name = key.raw_text().unwrap_or_default();
                let hint = bind_variable_hint(&value);
                SyntaxError::Rule(format!("Invalid property value: {value} for property: {name}{hint}"))
            })?;
            if entries.iter().any(|(other, _)| other.raw_text() == key.raw_text()) {
                let name = key.raw_text().unwrap_or_default();
                return Err(SyntaxError::Rule(format!("Multiple definition for property {name}")));
            }
            entries.push((key, value));
            Ok(())
        })?;
        self.expect(Symbol::RightBrace)?;
        Ok(entries)
    }

    pub(super) fn create_keyspace(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let keyspace = self.keyspace_name()?;
        let properties = self.with_properties()?;
        Ok(Statement::CreateKeyspace(CreateKeyspace { if_not_exists, keyspace, properties }))
    }

    pub(super) fn alter_keyspace(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let keyspace = self.keyspace_name()?;
        let properties = self.with_properties()?;
        Ok(Statement::AlterKeyspace(AlterKeyspace { if_exists, keyspace, properties }))
    }

    pub(super) fn drop_keyspace(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropKeyspace(DropKeyspace { if_exists, keyspace: self.keyspace_name()? }))
    }

    pub(super) fn create_type(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_type_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let mut fields = vec![self.name_and_type()?];
        while self.eat(Symbol::Comma) {
            // Cassandra accepts doubled and trailing commas.
            if !self.is(Symbol::Comma) && !self.is(Symbol::RightParenthesis) {
                fields.push(self.name_and_type()?);
            }
        }
        self.expect(Symbol::RightParenthesis)?;
        Ok(Statement::CreateType(CreateType { if_not_exists, name, fields }))
    }

    fn name_and_type(&mut self) -> Result<(Identifier, CqlTypeName)> {
        Ok((self.name()?, self.type_name()?))
    }

    pub(super) fn alter_type(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.user_type_name()?;
        let operation = if self.eat_keyword(Keyword::Alter) {
            let field = self.name()?;
            self.expect_keyword(Keyword::Type)?;
            AlterTypeOperation::AlterField { field, type_name: self.type_name()? }
        } else if self.eat_keyword(Keyword::Add) {
            let if_not_exists = self.if_not_exists()?;
            let (field, type_name) = self.name_and_type()?;
            AlterTypeOperation::AddField { if_not_exists, field, type_name }
        } else if self.eat_keyword(Keyword::Rename) {
            let if_exists = self.if_exists()?;
            AlterTypeOperation::RenameFields { if_exists, renames: self.and_separated(Self::rename)? }
        } else {
            return Err(self.no_viable_alternative());
        };
        Ok(Statement::AlterType(AlterType { if_exists, name, operation }))
    }

    pub(super) fn drop_type(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropType(DropType { if_exists, name: self.user_type_name()? }))
    }

    pub(super) fn create_index(&mut self) -> Result<Statement> {
        let custom = self.eat_keyword(Keyword::Custom);
        self.expect_keyword(Keyword::Index)?;
        let if_not_exists = self.if_not_exists()?;
        let name = if self.is_keyword(Keyword::On) { None } else { Some(self.index_name()?) };
        let name = match name {
            Some(name) if name.keyspace.is_some() => return Err(self.mismatched("K_ON")),
            name => name.map(|name| name.name),
        };
        self.expect_keyword(Keyword::On)?;
        let table = self.table_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let targets = self.comma_separated_until(Symbol::RightParenthesis, Self::index_target)?;
        let class = if self.eat_keyword(Keyword::Using) { Some(self.string()?) } else { None };
        let properties = if self.is_keyword(Keyword::With) { self.with_properties()? } else { Vec::new() };
        Ok(Statement::CreateIndex(CreateIndex {
            custom,
            if_not_exists,
            name,
            table,
            targets,
            class,
            properties,
        }))
    }

    fn index_target(&mut self) -> Result<IndexTarget> {
        let target: fn(Identifier) -> IndexTarget = match self.peek() {
            TokenKind::Keyword(Keyword::Values) => IndexTarget::Values,
            TokenKind::Keyword(Keyword::Keys) => IndexTarget::Keys,
            TokenKind::Keyword(Keyword::Entries) => IndexTarget::Entries,
            TokenKind::Keyword(Keyword::Full) => IndexTarget::Full,
            _ => IndexTarget::Simple,
        };
        if !self.is_at(1, Symbol::LeftParenthesis) {
            return self.column_name().map(IndexTarget::Simple);
        }
        self.advance();
        self.expect(Symbol::LeftParenthesis)?;
        let column = self.column_name()?;
        self.expect(Symbol::RightParenthesis)?;
        Ok(target(column))
    }

    pub(super) fn drop_index(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        Ok(Statement::DropIndex(DropIndex { if_exists, name: self.index_name()? }))
    }

    pub(super) fn create_function(&mut self, or_replace: bool) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect(Symbol::LeftParenthesis)?;
        let arguments = self.comma_separated_until(Symbol::RightParenthesis, Self::name_and_type)?;
        let called_on_null_input = self.eat_keyword(Keyword::Called);
        if !called_on_null_input {
            self.expect_keyword(Keyword::Returns)?;
            self.expect_keyword(Keyword::Null)?;
        }
        self.expect_keyword(Keyword::On)?;
        self.expect_keyword(Keyword::Null)?;
        self.expect_keyword(Keyword::Input)?;
        self.expect_keyword(Keyword::Returns)?;
        let return_type = self.type_name()?;
        self.expect_keyword(Keyword::Language)?;
        if self.peek() != TokenKind::Word {
            return Err(self.mismatched("IDENT"));
        }
        let language = self.name()?;
        self.expect_keyword(Keyword::As)?;
        let body = self.string()?;
        Ok(Statement::CreateFunction(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            arguments,
            called_on_null_input,
            return_type,
            language,
            body,
        }))
    }

    pub(super) fn create_aggregate(&mut self, or_replace: bool) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let argument_types = self.type_list()?;
        self.expect_keyword(Keyword::Sfunc)?;
        let state_function = self.unqualified_function_name()?;
        self.expect_keyword(Keyword::Stype)?;
        let state_type = self.type_name()?;
        let final_function =
            if self.eat_keyword(Keyword::Finalfunc) { Some(self.unqualified_function_name()?) } else { None };
        let initial_condition = if self.eat_keyword(Keyword::Initcond) { Some(self.value()?) } else { None };
        Ok(Statement::CreateAggregate(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            argument_types,
            state_function,
            state_type,
            final_function,
            initial_condition,
        }))
    }

    /// `(type, …)`, also `()`.
    pub(super) fn type_list(&mut self) -> Result<Vec<CqlTypeName>> {
        self.expect(Symbol::LeftParenthesis)?;
        self.comma_separated_until(Symbol::RightParenthesis, Self::type_name)
    }

    /// The rest of DROP FUNCTION and DROP AGGREGATE.
    pub(super) fn drop_function(&mut self) -> Result<DropFunction> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.function_name()?;
        let argument_types = if self.is(Symbol::LeftParenthesis) { Some(self.type_list()?) } else { None };
        Ok(DropFunction { if_exists, name, argument_types })
    }

    pub(super) fn create_trigger(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.name()?;
        self.expect_keyword(Keyword::On)?;
        let table = self.table_name()?;
        self.expect_keyword(Keyword::Using)?;
        let class = self.string()?;
        Ok(Statement::CreateTrigger(CreateTrigger { if_not_exists, name, table, class }))
    }

    pub(super) fn drop_trigger(&mut self) -> Result<Statement> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.name()?;
        self.expect_keyword(Keyword::On)?;
        Ok(Statement::DropTrigger(DropTrigger { if_exists, name, table: self.table_name()? }))
    }
}

/// Accepts a constant other than NULL.
fn constant(term: Expression) -> Result<Literal, Expression> {
    match term {
        Expression::Literal(literal) if literal != Literal::Null => Ok(literal),
        term => Err(term),
    }
}

fn bind_variable_hint(term: &Expression) -> &'static str {
    match term {
        Expression::Marker(_) => " (bind variables are not supported in DDL queries)",
        _ => "",
    }
}
