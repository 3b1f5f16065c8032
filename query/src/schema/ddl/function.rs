//! CREATE and DROP of functions and aggregates.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::{
    CqlTypeName, CreateAggregate, CreateFunction, DropFunction, Expression, Identifier, Literal,
};
use cql_lite::types::{CqlType, validate::validate};

use super::constant::constant;
use super::type_name::resolve;
use super::{Change, ChangeTarget, ChangeType, Ddl, SchemaChangeEvent, bounds, event, invalid};
use crate::error::Result;
use crate::functions::user::{DISABLED, UserAggregate, UserFunction, is_null, type_names};
use crate::schema::catalog::Keyspace;
use crate::schema::user_functions::UserFunctions;

/// The language of functions.
const LUA: &str = "lua";

/// The keyspace of a function or aggregate to be dropped, and the types of its arguments, if written.
type Dropped<'a> = (&'a Keyspace, Option<Vec<CqlType>>);

impl Ddl<'_> {
    pub(super) fn create_function(&self, create: &CreateFunction) -> Result<Change> {
        let keyspace_name = self.user_keyspace_name(create.name.keyspace.as_ref())?;
        let name = create.name.name.as_str();
        check_directives(create.or_replace, create.if_not_exists)?;
        if !self.context.user_functions.is_enabled() {
            return invalid(DISABLED);
        }
        let language = create.language.as_str();
        if !language.eq_ignore_ascii_case(LUA) {
            return invalid(format!(
                "Language '{language}' is not supported: user-defined functions are written in Lua (LANGUAGE lua)"
            ));
        }
        let argument_names: Vec<&str> = create.arguments.iter().map(|(name, _)| name.as_str()).collect();
        if argument_names.iter().collect::<BTreeSet<_>>().len() != argument_names.len() {
            return invalid(format!(
                "Duplicate argument names for given function {name} with argument names [{}]",
                argument_names.join(", ")
            ));
        }
        refuse_frozen("Argument", create.arguments.iter().map(|(_, argument)| argument))?;
        refuse_frozen("Return type", [&create.return_type])?;
        let keyspace = self.modifiable_keyspace(keyspace_name)?;
        let argument_types = types(create.arguments.iter().map(|(_, argument)| argument), keyspace)?;
        let function = UserFunction {
            keyspace: keyspace.name.clone(),
            name: name.to_owned(),
            argument_names: argument_names.into_iter().map(str::to_owned).collect(),
            argument_types,
            return_type: resolve(&create.return_type, keyspace)?,
            called_on_null_input: create.called_on_null_input,
            language: LUA.to_owned(),
            body: create.body.clone(),
        };
        bounds::check_function(&function)?;
        if let Err(problem) = self.context.user_functions.check(&function) {
            return invalid(format!(
                "Could not compile function '{}' from Lua source: {problem}",
                function.full_name()
            ));
        }
        let known = &keyspace.user_functions;
        if known.aggregate(name, &function.argument_types).is_some() {
            return invalid(format!("Function '{name}' cannot replace an aggregate"));
        }
        let mut change_type = ChangeType::Created;
        if let Some(existing) = known.function(name, &function.argument_types) {
            if create.if_not_exists {
                return Ok(self.unchanged());
            }
            if !create.or_replace {
                return invalid(format!("Function '{name}' already exists"));
            }
            check_replacement(known, existing, &function)?;
            if **existing == function {
                return Ok(self.unchanged());
            }
            change_type = ChangeType::Updated;
        }
        let arguments = create.arguments.iter().map(|(_, argument)| argument.to_string()).collect();
        let event = event(change_type, ChangeTarget::Function, &keyspace.name, name);
        let mut functions = known.clone();
        functions.put_function(function);
        Ok(self.functions_changed(keyspace, functions, SchemaChangeEvent { arguments, ..event }))
    }

    pub(super) fn create_aggregate(&self, create: &CreateAggregate) -> Result<Change> {
        let keyspace_name = self.user_keyspace_name(create.name.keyspace.as_ref())?;
        let name = create.name.name.as_str();
        check_directives(create.or_replace, create.if_not_exists)?;
        refuse_frozen("Argument", &create.argument_types)?;
        refuse_frozen("State type", [&create.state_type])?;
        let keyspace = self.modifiable_keyspace(keyspace_name)?;
        let known = &keyspace.user_functions;
        let argument_types = types(&create.argument_types, keyspace)?;
        let state_type = resolve(&create.state_type, keyspace)?;

        let shown = |function: &Identifier, arguments: &[&CqlTypeName]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            format!("{keyspace_name}.{}({})", function.as_str(), arguments.join(", "))
        };
        let state_arguments: Vec<CqlType> =
            std::iter::once(&state_type).chain(&argument_types).cloned().collect();
        let written: Vec<&CqlTypeName> =
            std::iter::once(&create.state_type).chain(&create.argument_types).collect();
        let state_function_text = shown(&create.state_function, &written);
        let state_function = create.state_function.as_str();
        if known.aggregate(state_function, &state_arguments).is_some() {
            return invalid(format!("State function {state_function_text} isn't a scalar function"));
        }
        let Some(state_function) = known.function(state_function, &state_arguments) else {
            return invalid(format!("State function {state_function_text} doesn't exist"));
        };
        if state_function.return_type.freeze() != state_type.freeze() {
            return invalid(format!(
                "State function {state_function_text} return type must be the same as the first argument type - check \
                 STYPE, argument and return types"
            ));
        }
        let mut return_type = state_type.clone();
        if let Some(function) = &create.final_function {
            let text = shown(function, &[&create.state_type]);
            let arguments = std::slice::from_ref(&state_type);
            if known.aggregate(function.as_str(), arguments).is_some() {
                return invalid(format!("Final function {text} isn't a scalar function"));
            }
            match known.function(function.as_str(), arguments) {
                Some(function) => return_type = function.return_type.clone(),
                None => return invalid(format!("Final function {text} doesn't exist")),
            }
        }
        let initial_condition = initial_condition(create.initial_condition.as_ref(), &state_type)?;
        if !state_function.called_on_null_input && initial_condition.is_none() {
            return invalid(format!(
                "Cannot create aggregate '{name}' without INITCOND because state function {} does not accept 'null' \
                 arguments",
                state_function.full_name()
            ));
        }
        let aggregate = UserAggregate {
            keyspace: keyspace.name.clone(),
            name: name.to_owned(),
            argument_types,
            state_function: state_function.name.clone(),
            state_type,
            final_function: create.final_function.as_ref().map(|function| function.as_str().to_owned()),
            return_type,
            initial_condition,
        };
        bounds::check_aggregate(&aggregate)?;
        if known.function(name, &aggregate.argument_types).is_some() {
            return invalid(format!("Aggregate '{name}' cannot replace a function"));
        }
        let mut change_type = ChangeType::Created;
        if let Some(existing) = known.aggregate(name, &aggregate.argument_types) {
            if create.if_not_exists {
                return Ok(self.unchanged());
            }
            if !create.or_replace {
                return invalid(format!("Aggregate '{name}' already exists"));
            }
            if !aggregate.return_type.is_value_compatible_with(&existing.return_type) {
                return invalid(format!(
                    "Cannot replace aggregate '{name}', the new return type {} isn't compatible with the return type \
                     {} of existing function",
                    aggregate.return_type, existing.return_type
                ));
            }
            if **existing == aggregate {
                return Ok(self.unchanged());
            }
            change_type = ChangeType::Updated;
        }
        let arguments = create.argument_types.iter().map(ToString::to_string).collect();
        let event = event(change_type, ChangeTarget::Aggregate, &keyspace.name, name);
        let mut functions = known.clone();
        functions.put_aggregate(aggregate);
        Ok(self.functions_changed(keyspace, functions, SchemaChangeEvent { arguments, ..event }))
    }

    pub(super) fn drop_function(&self, drop: &DropFunction) -> Result<Change> {
        let Some((keyspace, arguments)) = self.dropped(drop, "Function", "FUNCTION")? else {
            return Ok(self.unchanged());
        };
        let known = &keyspace.user_functions;
        let name = drop.name.name.as_str();
        let found = match &arguments {
            Some(arguments) => known.function(name, arguments),
            None => known.functions_named(name).next(),
        };
        let Some(function) = found else { return self.absent_function("Function", drop) };
        let users: Vec<String> =
            known.aggregates_using(function).map(|aggregate| aggregate.full_name()).collect();
        if !users.is_empty() {
            return invalid(format!(
                "Function '{}' is still referenced by aggregates {}",
                written(&keyspace.name, drop),
                users.join(", ")
            ));
        }
        let event = event(ChangeType::Dropped, ChangeTarget::Function, &keyspace.name, name);
        let arguments = type_names(&function.argument_types);
        let mut functions = known.clone();
        functions.remove_function(name, &function.argument_types);
        Ok(self.functions_changed(keyspace, functions, SchemaChangeEvent { arguments, ..event }))
    }

    pub(super) fn drop_aggregate(&self, drop: &DropFunction) -> Result<Change> {
        let Some((keyspace, arguments)) = self.dropped(drop, "Aggregate", "AGGREGATE")? else {
            return Ok(self.unchanged());
        };
        let known = &keyspace.user_functions;
        let name = drop.name.name.as_str();
        let found = match &arguments {
            Some(arguments) => known.aggregate(name, arguments),
            None => known.aggregates_named(name).next(),
        };
        let Some(aggregate) = found else { return self.absent_function("Aggregate", drop) };
        let event = event(ChangeType::Dropped, ChangeTarget::Aggregate, &keyspace.name, name);
        let arguments = type_names(&aggregate.argument_types);
        let mut functions = known.clone();
        functions.remove_aggregate(name, &aggregate.argument_types);
        Ok(self.functions_changed(keyspace, functions, SchemaChangeEvent { arguments, ..event }))
    }

    /// What a statement drops. `None`: there is nothing to do.
    fn dropped<'a>(&'a self, drop: &DropFunction, kind: &str, keyword: &str) -> Result<Option<Dropped<'a>>> {
        let keyspace_name = self.user_keyspace_name(drop.name.keyspace.as_ref())?;
        let Some(keyspace) = self.catalog.keyspace(keyspace_name) else {
            return self.absent_function(kind, drop).map(|_| None);
        };
        let known = &keyspace.user_functions;
        let name = drop.name.name.as_str();
        let count = known.functions_named(name).count() + known.aggregates_named(name).count();
        let Some(arguments) = &drop.argument_types else {
            if count > 1 {
                return invalid(format!(
                    "'DROP {keyword} {name}' matches multiple function definitions; specify the argument types by \
                     issuing a statement like 'DROP {keyword} {name} (type, type, ...)'. You can use cqlsh 'DESCRIBE \
                     {keyword} {name}' command to find all overloads"
                ));
            }
            let is_absent = count == 0 && drop.if_exists;
            return Ok((!is_absent).then_some((keyspace, None)));
        };
        refuse_frozen("Argument", arguments)?;
        let arguments = types(arguments, keyspace)?;
        let is_known = match keyword {
            "FUNCTION" => known.function(name, &arguments).is_some(),
            _ => known.aggregate(name, &arguments).is_some(),
        };
        Ok((is_known || !drop.if_exists).then_some((keyspace, Some(arguments))))
    }

    /// The answer for a function or aggregate that is not there.
    fn absent_function(&self, kind: &str, drop: &DropFunction) -> Result<Change> {
        if drop.if_exists {
            return Ok(self.unchanged());
        }
        let keyspace = self.keyspace_name(drop.name.keyspace.as_ref())?;
        invalid(format!("{kind} '{}' doesn't exist", written(keyspace, drop)))
    }

    fn functions_changed(
        &self,
        keyspace: &Keyspace,
        functions: UserFunctions,
        effect: SchemaChangeEvent,
    ) -> Change {
        Change {
            catalog: self.with_keyspace(Keyspace { user_functions: functions, ..keyspace.clone() }),
            effect: Some(effect),
            warnings: Vec::new(),
            table_actions: Vec::new(),
        }
    }
}

fn check_directives(or_replace: bool, if_not_exists: bool) -> Result<()> {
    if or_replace && if_not_exists {
        return invalid("Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives");
    }
    Ok(())
}

fn check_replacement(known: &UserFunctions, existing: &UserFunction, function: &UserFunction) -> Result<()> {
    let name = &function.name;
    if function.called_on_null_input != existing.called_on_null_input {
        let directive =
            if function.called_on_null_input { "CALLED ON NULL INPUT" } else { "RETURNS NULL ON NULL INPUT" };
        return invalid(format!("Function '{name}' must have {directive} directive"));
    }
    // An aggregate has the types of its functions.
    let is_used = known.aggregates_using(existing).next().is_some();
    let is_same = function.return_type == existing.return_type;
    if !function.return_type.is_value_compatible_with(&existing.return_type) || (is_used && !is_same) {
        return invalid(format!(
            "Cannot replace function '{name}', the new return type {} is not compatible with the return type {} of \
             existing function",
            function.return_type, existing.return_type
        ));
    }
    Ok(())
}

/// Refuses `frozen<…>` around types that are frozen in signatures anyway, except where they are always frozen.
fn refuse_frozen<'a>(what: &str, written: impl IntoIterator<Item = &'a CqlTypeName>) -> Result<()> {
    let is_refused = |name: &&CqlTypeName| match name {
        CqlTypeName::Frozen(inner) => !matches!(**inner, CqlTypeName::Tuple(_) | CqlTypeName::Vector(..)),
        _ => false,
    };
    match written.into_iter().find(is_refused) {
        Some(name) => {
            invalid(format!("{what} '{name}' cannot be frozen; remove frozen<> modifier from '{name}'"))
        }
        None => Ok(()),
    }
}

fn types<'a>(
    written: impl IntoIterator<Item = &'a CqlTypeName>,
    keyspace: &Keyspace,
) -> Result<Vec<CqlType>> {
    written.into_iter().map(|name| resolve(name, keyspace)).collect()
}

fn initial_condition(written: Option<&Expression>, state_type: &CqlType) -> Result<Option<Vec<u8>>> {
    let Some(written) = written else { return Ok(None) };
    let value = constant(written, state_type, "--dummy--")?;
    if value.as_ref().is_some_and(|bytes| validate(state_type, bytes).is_err()) {
        return invalid(format!("Invalid value for INITCOND of type {state_type}"));
    }
    if *written != Expression::Literal(Literal::Null) && is_null(state_type, value.as_deref()) {
        return invalid("INITCOND must not be empty for all types except TEXT, ASCII, BLOB");
    }
    Ok(value)
}

/// The function of a DROP as it was written, with its keyspace.
fn written(keyspace: &str, drop: &DropFunction) -> String {
    let arguments = drop.argument_types.as_ref().map_or_else(String::new, |types| {
        format!("({})", types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    });
    format!("{keyspace}.{}{arguments}", drop.name.name.as_str())
}
