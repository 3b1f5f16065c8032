//! User-defined functions and aggregates: their definitions, the language runtime that calls them, and the state of an aggregate.
//!
//! Invariants:
//! * A definition never changes: a replaced function is another value. So a runtime may keep what it has made of one by its address.
//! * A function has no side effects and depends on nothing but its arguments.
//! * The code of users runs in a [`UserFunctionRuntime`], which bounds its work. This crate is handed one and knows no language.

use std::fmt;
use std::sync::Arc;

use cql_lite::types::CqlType;

use crate::error::{RequestError, Result};
use helenus_roles::FunctionSignature;

/// The error of a node whose setting does not allow user-defined functions. The text is Cassandra's.
pub const DISABLED: &str = "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable";

/// A user-defined function.
#[derive(Debug, Clone, PartialEq)]
pub struct UserFunction {
    pub keyspace: String,
    pub name: String,
    pub argument_names: Vec<String>,
    pub argument_types: Vec<CqlType>,
    pub return_type: CqlType,
    /// `CALLED ON NULL INPUT`: without it a null argument makes the result null.
    pub called_on_null_input: bool,
    /// In lower case.
    pub language: String,
    pub body: String,
}

/// A user-defined aggregate. Its functions are in its keyspace; they are looked up when a statement is planned, so a replaced function
/// takes effect.
#[derive(Debug, Clone, PartialEq)]
pub struct UserAggregate {
    pub keyspace: String,
    pub name: String,
    pub argument_types: Vec<CqlType>,
    /// Takes the state and the arguments.
    pub state_function: String,
    pub state_type: CqlType,
    /// Takes the state.
    pub final_function: Option<String>,
    pub return_type: CqlType,
    /// Wire bytes of the state before the first row.
    pub initial_condition: Option<Vec<u8>>,
}

/// Checks and calls functions of users.
pub trait UserFunctionRuntime: fmt::Debug + Send + Sync {
    /// Whether functions may be made and called on this node.
    fn is_enabled(&self) -> bool;

    /// Checks that the function can be compiled; otherwise says why not.
    fn check(&self, function: &UserFunction) -> Result<(), String>;

    /// Calls a function with the wire bytes of its arguments. The result is valid for its return type. The error says what went wrong
    /// in it.
    fn call(
        &self,
        function: &Arc<UserFunction>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, String>;

    /// The work that functions have done on this thread since it began, in steps of about the same length.
    fn steps_on_this_thread(&self) -> u64;
}

/// The runtime of a node that allows no functions of users.
#[derive(Debug)]
pub struct NoUserFunctions;

impl UserFunctionRuntime for NoUserFunctions {
    fn is_enabled(&self) -> bool {
        false
    }

    fn check(&self, _: &UserFunction) -> Result<(), String> {
        Err(DISABLED.to_owned())
    }

    fn call(&self, _: &Arc<UserFunction>, _: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, String> {
        Err(DISABLED.to_owned())
    }

    fn steps_on_this_thread(&self) -> u64 {
        0
    }
}

impl UserFunction {
    /// The name with the keyspace: `ks.f`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// What permissions are granted on.
    pub fn signature(&self) -> FunctionSignature {
        signature(&self.keyspace, &self.name, &self.argument_types)
    }

    /// Calls the function with the wire bytes of its arguments, if it is to be called with nulls.
    pub(super) fn call(
        self: &Arc<Self>,
        arguments: &[Option<&[u8]>],
        runtime: &dyn UserFunctionRuntime,
    ) -> Result<Option<Vec<u8>>> {
        if !runtime.is_enabled() {
            return Err(RequestError::invalid(DISABLED));
        }
        if !self.takes(arguments) {
            return Ok(None);
        }
        runtime.call(self, arguments).map_err(|problem| self.failure(&problem))
    }

    /// Whether the function is called with these arguments.
    fn takes(&self, arguments: &[Option<&[u8]>]) -> bool {
        self.called_on_null_input
            || arguments.iter().zip(&self.argument_types).all(|(value, of)| !is_null(of, *value))
    }

    fn failure(&self, problem: &str) -> RequestError {
        let arguments = type_names(&self.argument_types);
        RequestError::Function {
            keyspace: self.keyspace.clone(),
            function: self.name.clone(),
            message: format!(
                "execution of '{}[{}]' failed: {problem}",
                self.full_name(),
                arguments.join(", ")
            ),
            arguments,
        }
    }
}

impl UserAggregate {
    /// The name with the keyspace: `ks.a`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// What permissions are granted on.
    pub fn signature(&self) -> FunctionSignature {
        signature(&self.keyspace, &self.name, &self.argument_types)
    }

    /// The types of the arguments of its state function.
    pub fn state_arguments(&self) -> Vec<CqlType> {
        std::iter::once(&self.state_type).chain(&self.argument_types).cloned().collect()
    }
}

/// Whether a function takes the value for null: no bytes are no value for most types.
pub fn is_null(of: &CqlType, value: Option<&[u8]>) -> bool {
    let keeps_empty = matches!(
        of,
        CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Tuple(_) | CqlType::UserType { .. }
    );
    value.is_none_or(|bytes| bytes.is_empty() && !keeps_empty)
}

/// Whether two lists of types name the same arguments: `frozen` makes no difference.
pub fn are_same_arguments(one: &[CqlType], other: &[CqlType]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.freeze() == other.freeze())
}

/// The types of arguments as the schema tables name them.
pub fn type_names(types: &[CqlType]) -> Vec<String> {
    types.iter().map(ToString::to_string).collect()
}

fn signature(keyspace: &str, name: &str, argument_types: &[CqlType]) -> FunctionSignature {
    FunctionSignature {
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        argument_types: type_names(argument_types),
    }
}

/// An aggregate with its functions.
#[derive(Debug, Clone)]
pub struct ResolvedAggregate {
    pub definition: Arc<UserAggregate>,
    pub state_function: Arc<UserFunction>,
    pub final_function: Option<Arc<UserFunction>>,
}

/// The state of a user-defined aggregate after the rows so far.
#[derive(Debug, Clone)]
pub struct UserState {
    aggregate: Arc<ResolvedAggregate>,
    state: Option<Vec<u8>>,
}

impl UserState {
    pub(super) fn new(aggregate: &Arc<ResolvedAggregate>) -> Self {
        Self { aggregate: aggregate.clone(), state: aggregate.definition.initial_condition.clone() }
    }

    /// Adds a row. A row with nulls that the state function does not take leaves the state as it is.
    pub(super) fn add(
        &mut self,
        arguments: &[Option<&[u8]>],
        runtime: &dyn UserFunctionRuntime,
    ) -> Result<()> {
        let function = &self.aggregate.state_function;
        let mut inputs = Vec::with_capacity(arguments.len() + 1);
        inputs.push(self.state.as_deref());
        inputs.extend_from_slice(arguments);
        if function.takes(&inputs) {
            self.state = function.call(&inputs, runtime)?;
        }
        Ok(())
    }

    /// The result for the rows so far.
    pub(super) fn result(&self, runtime: &dyn UserFunctionRuntime) -> Result<Option<Vec<u8>>> {
        match &self.aggregate.final_function {
            Some(function) => function.call(&[self.state.as_deref()], runtime),
            None => Ok(self.state.clone()),
        }
    }
}
