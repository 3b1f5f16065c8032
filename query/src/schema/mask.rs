//! Masks of columns (`MASKED WITH …`): what roles without the permission UNMASK see of a column.

use cql_lite::syntax::ast::{self, Expression, Literal};
use cql_lite::types::{CqlType, literal};

use crate::error::{RequestError, Result};
use crate::functions::{self, ResolvedFunction};

const DEFAULT: &str = "mask_default";

/// A native function that is applied to the values of a column, with its other arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnMask {
    /// Without its keyspace.
    function: String,
    /// The arguments behind the column.
    arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq)]
struct Argument {
    of: CqlType,
    /// `None`: null.
    value: Option<Vec<u8>>,
}

impl Argument {
    fn parse(of: &CqlType, written: &Literal) -> std::result::Result<Self, literal::LiteralError> {
        let value = written.raw_text().map(|text| literal::parse(of, &text)).transpose()?;
        Ok(Self { of: of.clone(), value })
    }
}

impl ColumnMask {
    /// The mask that is declared for a column.
    pub fn declare(column: &str, column_type: &CqlType, mask: &ast::ColumnMask) -> Result<Self> {
        let (written, arguments) = match mask {
            ast::ColumnMask::Default => (DEFAULT.to_owned(), &[][..]),
            ast::ColumnMask::Function { name, arguments } => {
                let keyspace = name.keyspace.as_ref().map(ast::Identifier::as_str);
                (functions::qualified_name(keyspace, name.name.as_str()), &arguments[..])
            }
        };
        let texts: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let signature = format!("{written}({})", texts.join(", "));
        if functions::is_aggregate(&written) {
            return invalid(format!(
                "Aggregate function {signature} cannot be used for masking table columns"
            ));
        }
        if !functions::exists(&written) {
            return invalid(format!(
                "Unable to find masking function for {column}, no declared function matches the signature {signature}"
            ));
        }
        if !functions::is_masking(&written) {
            return invalid(format!(
                "Not-masking function {signature} cannot be used for masking table columns"
            ));
        }
        let literals = arguments.iter().map(constant).collect::<Result<Vec<_>>>()?;
        let mut known = vec![Some(column_type.clone())];
        known.resize(literals.len() + 1, None);
        let natural_type = |literal: &&Literal| {
            literal.kind().map(|kind| kind.preferred_type(&literal.raw_text().unwrap_or_default()))
        };
        let natural: Vec<_> = std::iter::once(None).chain(literals.iter().map(natural_type)).collect();
        let all_texts: Vec<String> = std::iter::once(column.to_owned()).chain(texts).collect();
        let function =
            functions::resolve_described(&written, &known, &natural, &all_texts, Some(column_type))?;
        if function.return_type().freeze() != column_type.freeze() {
            return invalid(format!(
                "Masking function {signature} return type is {}. This is different to the type of the masked column {column} \
                 of type {column_type}. Masking functions can only be attached to table columns if they return the \
                 same data type as the masked column.",
                function.return_type()
            ));
        }
        let arguments = literals.iter().zip(&function.argument_types()[1..]);
        let arguments = arguments.map(|(written, of)| {
            Argument::parse(of, written).map_err(|error| RequestError::Invalid(error.to_string()))
        });
        Ok(Self { function: function.name().to_owned(), arguments: arguments.collect::<Result<_>>()? })
    }

    /// The stored mask of a column, without the rules for declarations, which another version of the program may have had otherwise.
    /// `None`: it is none that a version declares.
    pub fn restore(column_type: &CqlType, mask: &ast::ColumnMask) -> Option<Self> {
        let (function, written) = match mask {
            ast::ColumnMask::Default => (DEFAULT, &[][..]),
            ast::ColumnMask::Function { name, arguments } => (name.name.as_str(), &arguments[..]),
        };
        let types = functions::masking_parameter_types(function, column_type).unwrap_or_default();
        let mut arguments = Vec::with_capacity(written.len());
        for (index, argument) in written.iter().enumerate() {
            let Expression::Literal(written) = argument else { return None };
            let natural = || Some(written.kind()?.preferred_type(&written.raw_text()?));
            let of = types.get(index + 1).cloned().or_else(natural).unwrap_or(CqlType::Text);
            // What is no value of its type stays a text.
            let argument =
                Argument::parse(&of, written).or_else(|_| Argument::parse(&CqlType::Text, written));
            arguments.push(argument.ok()?);
        }
        Some(Self { function: function.to_owned(), arguments })
    }

    /// The function that hides the values of a column, and its arguments behind the value.
    pub fn function(
        &self,
        name: &str,
        column_type: &CqlType,
    ) -> Result<(ResolvedFunction, Vec<Option<Vec<u8>>>)> {
        let arguments = self.arguments.iter().map(|argument| argument.of.clone());
        let known: Vec<Option<CqlType>> =
            std::iter::once(column_type.clone()).chain(arguments).map(Some).collect();
        let natural = vec![None; known.len()];
        let texts = vec![name.to_owned(); known.len()];
        // A mask of another version of the program, which this one does not know, lets nothing be read.
        let function =
            functions::resolve_described(&self.function, &known, &natural, &texts, Some(column_type))?;
        Ok((function, self.arguments.iter().map(|argument| argument.value.clone()).collect()))
    }

    /// The mask as CQL: `MASKED WITH …`.
    pub fn to_cql(&self) -> String {
        let literal = |argument: &Argument| match &argument.value {
            None => "null".to_owned(),
            Some(value) => literal::format(&argument.of, value),
        };
        let arguments: Vec<String> = self.arguments.iter().map(literal).collect();
        format!("MASKED WITH system.{}({})", self.function, arguments.join(", "))
    }

    /// The name of the function, without its keyspace.
    pub fn function_name(&self) -> &str {
        &self.function
    }

    pub fn argument_types(&self) -> Vec<String> {
        self.arguments.iter().map(|argument| argument.of.to_string()).collect()
    }

    /// The arguments as texts, without quotes; a null is the empty text.
    pub fn argument_texts(&self) -> Vec<String> {
        let text = |argument: &Argument| match &argument.value {
            None => String::new(),
            Some(value) => literal::to_text(&argument.of, value),
        };
        self.arguments.iter().map(text).collect()
    }

    /// Which arguments are null.
    pub fn argument_nulls(&self) -> Vec<bool> {
        self.arguments.iter().map(|argument| argument.value.is_none()).collect()
    }
}

fn constant(argument: &Expression) -> Result<&Literal> {
    match argument {
        Expression::Literal(literal) => Ok(literal),
        other => invalid(format!(
            "Only constants are supported by Helenus as arguments of masking functions, but found {other}"
        )),
    }
}

fn invalid<T>(message: String) -> Result<T> {
    Err(RequestError::Invalid(message))
}
