//! The user-defined functions and aggregates of a keyspace.
//!
//! Invariants:
//! * Functions and aggregates are ordered by name, then by the types of their arguments, as the schema tables show them.
//! * No two, of either kind, have the same name and the same arguments.
//! * The functions that an aggregate names are there.

use std::sync::Arc;

use cql_lite::types::{CqlType, UserType};

use crate::functions::ResolvedFunction;
use crate::functions::user::{
    ResolvedAggregate, UserAggregate, UserFunction, are_same_arguments, type_names,
};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UserFunctions {
    functions: Vec<Arc<UserFunction>>,
    aggregates: Vec<Arc<UserAggregate>>,
}

impl UserFunctions {
    /// Functions and aggregates in any order.
    pub fn new(
        functions: impl IntoIterator<Item = UserFunction>,
        aggregates: impl IntoIterator<Item = UserAggregate>,
    ) -> Self {
        let mut all = Self {
            functions: functions.into_iter().map(Arc::new).collect(),
            aggregates: aggregates.into_iter().map(Arc::new).collect(),
        };
        all.arrange();
        all
    }

    fn arrange(&mut self) {
        self.functions
            .sort_by_cached_key(|function| (function.name.clone(), type_names(&function.argument_types)));
        self.aggregates
            .sort_by_cached_key(|aggregate| (aggregate.name.clone(), type_names(&aggregate.argument_types)));
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.aggregates.is_empty()
    }

    pub fn functions(&self) -> &[Arc<UserFunction>] {
        &self.functions
    }

    pub fn aggregates(&self) -> &[Arc<UserAggregate>] {
        &self.aggregates
    }

    pub fn functions_named(&self, name: &str) -> impl Iterator<Item = &Arc<UserFunction>> {
        self.functions.iter().filter(move |function| function.name == name)
    }

    pub fn aggregates_named(&self, name: &str) -> impl Iterator<Item = &Arc<UserAggregate>> {
        self.aggregates.iter().filter(move |aggregate| aggregate.name == name)
    }

    pub fn function(&self, name: &str, arguments: &[CqlType]) -> Option<&Arc<UserFunction>> {
        self.functions_named(name).find(|function| are_same_arguments(&function.argument_types, arguments))
    }

    pub fn aggregate(&self, name: &str, arguments: &[CqlType]) -> Option<&Arc<UserAggregate>> {
        self.aggregates_named(name).find(|aggregate| are_same_arguments(&aggregate.argument_types, arguments))
    }

    /// Whether there is a function or an aggregate with a name and types of arguments, as [`type_names`] names them.
    pub fn has(&self, name: &str, argument_types: &[String]) -> bool {
        let is = |types: &[CqlType]| type_names(types) == argument_types;
        self.functions_named(name).any(|function| is(&function.argument_types))
            || self.aggregates_named(name).any(|aggregate| is(&aggregate.argument_types))
    }

    /// Adds a function, or puts it in the place of the one with the same name and arguments.
    pub fn put_function(&mut self, function: UserFunction) {
        self.remove_function(&function.name, &function.argument_types);
        self.functions.push(Arc::new(function));
        self.arrange();
    }

    /// Adds an aggregate, or puts it in the place of the one with the same name and arguments.
    pub fn put_aggregate(&mut self, aggregate: UserAggregate) {
        self.remove_aggregate(&aggregate.name, &aggregate.argument_types);
        self.aggregates.push(Arc::new(aggregate));
        self.arrange();
    }

    pub fn remove_function(&mut self, name: &str, arguments: &[CqlType]) {
        self.functions.retain(|function| {
            function.name != name || !are_same_arguments(&function.argument_types, arguments)
        });
    }

    pub fn remove_aggregate(&mut self, name: &str, arguments: &[CqlType]) {
        self.aggregates.retain(|aggregate| {
            aggregate.name != name || !are_same_arguments(&aggregate.argument_types, arguments)
        });
    }

    /// The aggregates whose state function or final function this is.
    pub fn aggregates_using(&self, function: &UserFunction) -> impl Iterator<Item = &Arc<UserAggregate>> {
        self.aggregates.iter().filter(move |aggregate| {
            let is_state_function = aggregate.state_function == function.name
                && are_same_arguments(&aggregate.state_arguments(), &function.argument_types);
            let is_final_function = aggregate.final_function.as_ref() == Some(&function.name)
                && are_same_arguments(std::slice::from_ref(&aggregate.state_type), &function.argument_types);
            is_state_function || is_final_function
        })
    }

    /// What a call of this name may mean.
    pub fn candidates(&self, name: &str) -> Vec<ResolvedFunction> {
        let functions = self.functions_named(name).cloned().map(ResolvedFunction::user);
        let aggregates = self.aggregates_named(name).filter_map(|aggregate| self.resolved(aggregate));
        functions.chain(aggregates.map(ResolvedFunction::user_aggregate)).collect()
    }

    /// The functions and aggregates with a name, and the functions of these aggregates.
    #[must_use]
    pub fn meanings(&self, name: &str) -> Self {
        let aggregates: Vec<_> = self.aggregates_named(name).cloned().collect();
        let is_used = |function: &UserFunction| {
            let names = |aggregate: &Arc<UserAggregate>| {
                aggregate.state_function == function.name
                    || aggregate.final_function.as_ref() == Some(&function.name)
            };
            function.name == name || aggregates.iter().any(names)
        };
        let functions = self.functions.iter().filter(|function| is_used(function)).cloned().collect();
        Self { functions, aggregates }
    }

    fn resolved(&self, aggregate: &Arc<UserAggregate>) -> Option<Arc<ResolvedAggregate>> {
        let state_function = self.function(&aggregate.state_function, &aggregate.state_arguments());
        let final_function = match &aggregate.final_function {
            Some(name) => Some(self.function(name, std::slice::from_ref(&aggregate.state_type))?.clone()),
            None => None,
        };
        debug_assert!(state_function.is_some(), "{} has its functions", aggregate.full_name());
        Some(Arc::new(ResolvedAggregate {
            definition: aggregate.clone(),
            state_function: state_function?.clone(),
            final_function,
        }))
    }

    /// The full names of the functions and aggregates with a user type in their signatures.
    pub fn names_using_type<'a>(
        &'a self,
        keyspace: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        let uses = move |of: &CqlType| of.references_user_type(keyspace, name);
        let functions = self
            .functions
            .iter()
            .filter(move |function| function.argument_types.iter().any(uses) || uses(&function.return_type));
        let aggregates = self.aggregates.iter().filter(move |aggregate| {
            aggregate.state_arguments().iter().any(uses) || uses(&aggregate.return_type)
        });
        functions
            .map(|function| function.full_name())
            .chain(aggregates.map(|aggregate| aggregate.full_name()))
    }

    /// With a user type replaced in all signatures. What does not use it is shared.
    #[must_use]
    pub fn with_user_type(&self, definition: &std::sync::Arc<UserType>) -> Self {
        let uses = |of: &CqlType| of.references_user_type(&definition.keyspace, &definition.name);
        let replace = |of: &mut CqlType| *of = of.with_user_type(definition);
        let mut all = self.clone();
        for function in &mut all.functions {
            if function.argument_types.iter().any(uses) || uses(&function.return_type) {
                let mut changed = UserFunction::clone(function);
                changed.argument_types.iter_mut().for_each(replace);
                replace(&mut changed.return_type);
                *function = Arc::new(changed);
            }
        }
        for aggregate in &mut all.aggregates {
            if aggregate.state_arguments().iter().any(uses) || uses(&aggregate.return_type) {
                let mut changed = UserAggregate::clone(aggregate);
                changed.argument_types.iter_mut().for_each(replace);
                replace(&mut changed.state_type);
                replace(&mut changed.return_type);
                *aggregate = Arc::new(changed);
            }
        }
        all
    }
}
