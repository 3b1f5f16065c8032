//! A function with a chosen overload, and its call.

use std::sync::Arc;

use cql_lite::types::CqlType;
use cql_lite::types::token::{Partitioner, write_composite_component};

use super::arithmetic::{self, Operator};
use super::cast::Cast;
use super::collection::{self, CollectionFunction};
use super::context::CallContext;
use super::conversion;
use super::failure::{CallResult, Failure};
use super::masking::{self, MaskingFunction};
use super::math::{self, MathFunction};
use super::temporal::{self, TemporalFunction};
use super::user::{ResolvedAggregate, UserFunction};
use super::vector;
use crate::error::{RequestError, Result};
use helenus_roles::FunctionSignature;
use helenus_vectors::Similarity;

/// The computation of a function.
#[derive(Debug, Clone)]
pub(super) enum Implementation {
    Operation(Operator),
    Concatenation,
    Negation,
    Math(MathFunction),
    Cast(Cast),
    Temporal(TemporalFunction),
    Uuid,
    ToBlob,
    FromBlob,
    ToJson,
    FromJson,
    Collection(CollectionFunction),
    Similarity(Similarity),
    Length,
    OctetLength,
    Substring,
    Token(Partitioner),
    User(Arc<UserFunction>),
    /// The call of an aggregate has no result of its own: see [`ResolvedFunction::aggregate`].
    Aggregate(Arc<ResolvedAggregate>),
    Masking(MaskingFunction),
}

/// A function with resolved types.
#[derive(Debug, Clone)]
pub struct ResolvedFunction {
    name: String,
    qualified_name: String,
    argument_types: Vec<CqlType>,
    return_type: CqlType,
    implementation: Implementation,
}

impl ResolvedFunction {
    pub(super) fn new(
        name: &str,
        argument_types: Vec<CqlType>,
        return_type: CqlType,
        implementation: Implementation,
    ) -> Self {
        let qualified_name = format!("system.{name}");
        Self { name: name.to_owned(), qualified_name, argument_types, return_type, implementation }
    }

    /// A user-defined function.
    pub fn user(function: Arc<UserFunction>) -> Self {
        Self {
            name: function.name.clone(),
            qualified_name: function.full_name(),
            argument_types: function.argument_types.clone(),
            return_type: function.return_type.clone(),
            implementation: Implementation::User(function),
        }
    }

    /// A user-defined aggregate, to be chosen among functions by its arguments.
    pub fn user_aggregate(aggregate: Arc<ResolvedAggregate>) -> Self {
        let definition = &aggregate.definition;
        Self {
            name: definition.name.clone(),
            qualified_name: definition.full_name(),
            argument_types: definition.argument_types.clone(),
            return_type: definition.return_type.clone(),
            implementation: Implementation::Aggregate(aggregate),
        }
    }

    /// The aggregate, if it is one.
    pub fn aggregate(&self) -> Option<&Arc<ResolvedAggregate>> {
        match &self.implementation {
            Implementation::Aggregate(aggregate) => Some(aggregate),
            _ => None,
        }
    }

    /// Whether it is a function of users.
    pub fn is_user_defined(&self) -> bool {
        matches!(self.implementation, Implementation::User(_) | Implementation::Aggregate(_))
    }

    /// The functions of users that a call needs: none for a native one, for an aggregate it and its functions.
    pub fn user_signatures(&self) -> Vec<FunctionSignature> {
        match &self.implementation {
            Implementation::User(function) => vec![function.signature()],
            Implementation::Aggregate(aggregate) => {
                let functions = [Some(&aggregate.state_function), aggregate.final_function.as_ref()];
                let functions = functions.into_iter().flatten().map(|function| function.signature());
                [aggregate.definition.signature()].into_iter().chain(functions).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The name without the keyspace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name with the keyspace, for example `system.now`.
    pub fn qualified_name(&self) -> &str {
        &self.qualified_name
    }

    /// Name, arguments and result: `ks.f : (int) -> text`.
    pub fn signature(&self) -> String {
        let arguments: Vec<String> = self.argument_types.iter().map(ToString::to_string).collect();
        format!("{} : ({}) -> {}", self.qualified_name, arguments.join(", "), self.return_type)
    }

    /// The types of the arguments. A call takes their wire bytes.
    pub fn argument_types(&self) -> &[CqlType] {
        &self.argument_types
    }

    /// The type of the result.
    pub fn return_type(&self) -> &CqlType {
        &self.return_type
    }

    /// Whether equal arguments always give equal results.
    pub fn is_pure(&self) -> bool {
        match &self.implementation {
            Implementation::Uuid => false,
            Implementation::Temporal(function) => function.is_pure(),
            _ => true,
        }
    }

    /// Calls the function with the wire bytes of its arguments.
    pub fn call(&self, arguments: &[Option<&[u8]>], context: &CallContext) -> Result<Option<Vec<u8>>> {
        if let Implementation::User(function) = &self.implementation {
            return function.call(arguments, context.user_functions());
        }
        self.run(arguments, context).map_err(|failure| self.error(failure))
    }

    fn run(&self, arguments: &[Option<&[u8]>], context: &CallContext) -> CallResult {
        match &self.implementation {
            Implementation::ToJson => return conversion::to_json(self.argument_type(0), first(arguments)),
            Implementation::Masking(function) => {
                return masking::apply(*function, &self.qualified_name, self.argument_type(0), arguments);
            }
            Implementation::Uuid => return Ok(Some(context.random_uuid().into_bytes().to_vec())),
            Implementation::Temporal(function) if !function.is_pure() => {
                return Ok(Some(temporal::now(*function, context)));
            }
            _ => {}
        }
        // Every other function returns null for a null argument.
        let Some(values) = arguments.iter().copied().collect::<Option<Vec<&[u8]>>>() else { return Ok(None) };
        debug_assert_eq!(
            values.len(),
            self.argument_types.len(),
            "a function gets the arguments it was resolved for"
        );
        // A function with fewer arguments does not look at these.
        let value = values.first().copied().unwrap_or_default();
        let second = values.get(1).copied().unwrap_or_default();
        match &self.implementation {
            Implementation::Operation(operator) => {
                arithmetic::operate(*operator, &self.argument_types, &self.return_type, value, second)
            }
            Implementation::Concatenation => Ok(Some([value, second].concat())),
            Implementation::Negation => arithmetic::negate(&self.return_type, value),
            Implementation::Math(function) => math::apply(*function, &self.return_type, value),
            Implementation::Cast(cast) => cast.apply(self.argument_type(0), &self.return_type, value),
            Implementation::Temporal(function) => temporal::apply(*function, &self.argument_types, &values),
            Implementation::ToBlob => Ok(Some(value.to_vec())),
            Implementation::FromBlob => conversion::from_blob(&self.qualified_name, &self.return_type, value),
            Implementation::FromJson => conversion::from_json(&self.return_type, value),
            Implementation::Collection(function) => {
                collection::apply(*function, self.argument_type(0), value)
            }
            Implementation::Similarity(similarity) => {
                vector::similarity(*similarity, &self.qualified_name, value, second)
            }
            Implementation::Length => Ok(Some(conversion::length(value))),
            Implementation::OctetLength => Ok(Some((value.len() as i32).to_be_bytes().to_vec())),
            Implementation::Substring => conversion::substring(&values),
            Implementation::Token(partitioner) => token_of(*partitioner, &values),
            Implementation::ToJson | Implementation::Uuid | Implementation::Masking(_) => Ok(None),
            Implementation::User(_) | Implementation::Aggregate(_) => {
                unreachable!("{} is called where functions of users are", self.qualified_name)
            }
        }
    }

    fn argument_type(&self, index: usize) -> &CqlType {
        debug_assert!(index < self.argument_types.len(), "{} has no argument {index}", self.qualified_name);
        self.argument_types.get(index).unwrap_or(&CqlType::Blob)
    }

    fn error(&self, failure: Failure) -> RequestError {
        let problem = match failure {
            Failure::Invalid(message) => return RequestError::Invalid(message),
            Failure::Execution(problem) => problem,
        };
        let arguments: Vec<String> = self.argument_types.iter().map(ToString::to_string).collect();
        let message = match &self.implementation {
            Implementation::Operation(operator) => format!(
                "the operation '{} {} {}' failed: {problem}",
                self.argument_type(0),
                operator.symbol(),
                self.argument_type(1)
            ),
            _ => {
                format!("execution of '{}[{}]' failed: {problem}", self.qualified_name, arguments.join(", "))
            }
        };
        RequestError::Function {
            keyspace: "system".to_owned(),
            function: self.name.clone(),
            arguments,
            message,
        }
    }
}

fn first<'a>(arguments: &[Option<&'a [u8]>]) -> Option<&'a [u8]> {
    arguments.first().copied().flatten()
}

/// The function `token` over the wire bytes of a partition key's columns.
pub fn token(arity: usize, partitioner: Partitioner) -> ResolvedFunction {
    let token = Implementation::Token(partitioner);
    ResolvedFunction::new("token", vec![CqlType::Blob; arity], CqlType::Bigint, token)
}

fn token_of(partitioner: Partitioner, values: &[&[u8]]) -> CallResult {
    let token = match values {
        [single] => partitioner.token(single),
        several => {
            let mut key = Vec::new();
            for value in several {
                if !write_composite_component(value, &mut key) {
                    return Err(Failure::Invalid(format!(
                        "Key length of {} is longer than maximum of 65535",
                        value.len()
                    )));
                }
            }
            partitioner.token(&key)
        }
    };
    Ok(Some(token.to_be_bytes().to_vec()))
}
