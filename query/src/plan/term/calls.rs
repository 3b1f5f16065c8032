//! Resolves calls: functions, casts, operators and `token`, with their arguments.
//!
//! Expressions nest, and the stack is bounded: what a call needs beside its arguments is kept out of the frames of those functions that
//! call each other, which is why some are never inlined.

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::Expression;
use super::literals::{is_assignable, is_open, is_wrong_literal};
use super::resolve::{Resolver, Row, Typed};
use crate::error::{RequestError, Result};
use crate::functions::{self, ResolvedFunction};
use crate::plan::names::display_name;
use crate::schema::catalog::Column;

impl<R: Row> Resolver<'_, R> {
    /// Resolves a call. `hint` is the expected type of its result.
    pub(super) fn call(
        &mut self,
        expression: &ast::Expression,
        hint: Option<&CqlType>,
    ) -> Result<Typed<R::Read>> {
        match expression {
            ast::Expression::Function { name, arguments } => self.named(name, arguments, hint),
            ast::Expression::Cast { operand, target } => {
                let operand = self.resolve_untyped(operand)?;
                cast(operand, *target)
            }
            ast::Expression::Arithmetic { left, operator, right } => {
                self.function(functions::operator_name(operator.symbol()), &[], &[left, right], hint)
            }
            ast::Expression::Negation(operand) => self.function(functions::NEGATION, &[], &[operand], hint),
            other => Err(R::cannot_infer(other)),
        }
    }

    #[inline(never)]
    fn named(
        &mut self,
        name: &ast::FunctionName,
        arguments: &[ast::Expression],
        hint: Option<&CqlType>,
    ) -> Result<Typed<R::Read>> {
        if name.name == "token" && name.keyspace.as_ref().is_none_or(|keyspace| *keyspace == "system") {
            return self.token(arguments);
        }
        let qualified = functions::qualified_name(
            name.keyspace.as_ref().map(ast::Identifier::as_str),
            name.name.as_str(),
        );
        let arguments: Vec<&ast::Expression> = arguments.iter().collect();
        if let Some(aggregate) = R::aggregate(self, &qualified, &arguments)? {
            return Ok(aggregate);
        }
        let others = self.scope.user_functions(name);
        if let Some(called) = self.scope.called(name) {
            self.markers.note_call(called);
        }
        self.function(&qualified, &others, &arguments, hint)
    }

    /// The natural type of arithmetic on literals.
    pub(super) fn result_of_literals(&mut self, expression: &ast::Expression) -> Option<CqlType> {
        let (name, operands) = match expression {
            ast::Expression::Arithmetic { left, operator, right } => {
                (functions::operator_name(operator.symbol()), vec![&**left, &**right])
            }
            ast::Expression::Negation(operand) => (functions::NEGATION, vec![&**operand]),
            _ => return None,
        };
        let natural: Vec<_> = operands.iter().map(|operand| self.natural_type(operand)).collect();
        type_of_literals(name, &natural)
    }

    fn function(
        &mut self,
        name: &str,
        others: &[ResolvedFunction],
        arguments: &[&ast::Expression],
        hint: Option<&CqlType>,
    ) -> Result<Typed<R::Read>> {
        if others.is_empty() && !functions::exists(name) {
            return Err(R::unknown_function(name));
        }
        let aggregates_before = self.row.aggregate_count();
        let mut resolved = Vec::with_capacity(arguments.len());
        let mut known = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let given = match argument {
                ast::Expression::List(items) => functions::list_literal_type(name, items.len()),
                _ => None,
            };
            let own = if given.is_some() || is_open(argument) {
                None
            } else {
                Some(self.resolve_untyped(argument)?)
            };
            known.push(own.as_ref().map(|(_, own)| own.clone()).or(given));
            resolved.push(own);
        }
        let function = self.choose(name, others, &known, arguments, hint)?;
        if function.is_user_defined() {
            self.markers.note_execution(&function);
        }
        let mut inputs = Vec::with_capacity(arguments.len());
        for (index, (argument, resolved)) in arguments.iter().zip(resolved).enumerate() {
            inputs.push(if let Some((resolved, _)) = resolved {
                resolved
            } else {
                let name = format!("arg{index}({})", function.qualified_name());
                self.resolve(argument, &Self::receiver(name, function.argument_types()[index].clone()))?
            });
        }
        if let Some(aggregate) = function.aggregate() {
            return R::user_aggregate(self, aggregate, inputs, aggregates_before);
        }
        let return_type = function.return_type().clone();
        Ok((Expression::Function { function: *function, arguments: inputs }, return_type))
    }

    /// The function of this name that takes the arguments. `known`: their types, where they have some.
    #[inline(never)]
    fn choose(
        &mut self,
        name: &str,
        others: &[ResolvedFunction],
        known: &[Option<CqlType>],
        arguments: &[&ast::Expression],
        hint: Option<&CqlType>,
    ) -> Result<Box<ResolvedFunction>> {
        let natural: Vec<Option<CqlType>> =
            arguments.iter().map(|argument| self.natural_type(argument)).collect();
        let texts: Vec<String> = arguments.iter().map(|argument| display_name(argument)).collect();
        functions::resolve_among(name, others, known, &natural, &texts, hint).map(Box::new)
    }

    #[inline(never)]
    fn token(&mut self, arguments: &[ast::Expression]) -> Result<Typed<R::Read>> {
        let Some(table) = self.scope.table else {
            return Err(RequestError::invalid("token() needs a table"));
        };
        let key = table.partition_key();
        if arguments.len() != key.len() {
            return Err(RequestError::invalid(format!(
                "Invalid number of arguments in call to function system.token: {} required but {} provided",
                key.len(),
                arguments.len()
            )));
        }
        let mut resolved = Vec::with_capacity(key.len());
        for (index, (column, argument)) in key.iter().zip(arguments).enumerate() {
            if is_open(argument) {
                let receiver =
                    Self::receiver(format!("arg{index}(system.token)"), column.column_type.clone());
                let value = self.resolve(argument, &receiver);
                resolved.push(value.map_err(|error| {
                    if is_wrong_literal(&error) { wrong_argument(argument, index, column) } else { error }
                })?);
                continue;
            }
            let (argument_value, actual) = self.resolve_untyped(argument)?;
            if !is_assignable(&column.column_type, &actual) {
                return Err(wrong_argument(argument, index, column));
            }
            resolved.push(argument_value);
        }
        Ok((
            Expression::Function {
                function: functions::token(key.len(), table.partitioner()),
                arguments: resolved,
            },
            CqlType::Bigint,
        ))
    }
}

/// The type of a function's result, of arguments with these natural types.
#[inline(never)]
fn type_of_literals(name: &str, natural: &[Option<CqlType>]) -> Option<CqlType> {
    let known = vec![None; natural.len()];
    let function = functions::resolve_with_literals(name, &known, natural, None).ok()?;
    Some(function.return_type().clone())
}

/// A conversion of a resolved operand.
#[inline(never)]
fn cast<T>((operand, operand_type): Typed<T>, target: ast::NativeType) -> Result<Typed<T>> {
    let target = CqlType::native(target.name())
        .ok_or_else(|| RequestError::invalid(format!("Unknown type {}", target.name())))?;
    let function = functions::resolve_cast(&operand_type, &target)?;
    Ok((Expression::Function { function, arguments: vec![operand] }, target))
}

fn wrong_argument(argument: &ast::Expression, index: usize, column: &Column) -> RequestError {
    RequestError::invalid(format!(
        "Type error: {} cannot be passed as argument {index} of function system.token of type {}",
        display_name(argument),
        column.column_type
    ))
}
