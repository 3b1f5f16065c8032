//! Looks up the names of a statement in the catalog (tables, columns, types), and names expressions.

use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use crate::error::{RequestError, Result};
use crate::functions::{self, ResolvedFunction};
use crate::schema::catalog::{Catalog, Column, Keyspace, Table};
use crate::schema::ddl;
use crate::schema::user_functions::UserFunctions;

/// The scope in which names are looked up.
#[derive(Debug, Clone, Copy)]
pub struct NameScope<'a> {
    pub catalog: &'a Catalog,
    /// The keyspace of the statement's table, in which user types are looked up.
    pub keyspace: Option<&'a str>,
    pub table: Option<&'a Table>,
}

/// What a name of functions meant when a statement was planned.
#[derive(Debug, Clone, PartialEq)]
pub struct CalledFunctions {
    keyspace: String,
    name: String,
    /// All functions and aggregates with the name.
    meanings: UserFunctions,
}

impl CalledFunctions {
    /// Whether the name still means the same in a catalog.
    pub fn mean_the_same_in(&self, catalog: &Catalog) -> bool {
        let keyspace = catalog.keyspace(&self.keyspace);
        keyspace.is_some_and(|keyspace| keyspace.user_functions.meanings(&self.name) == self.meanings)
    }
}

impl NameScope<'_> {
    /// The functions and aggregates of users that a call may mean: those of its keyspace, or else of the statement's.
    pub fn user_functions(&self, name: &ast::FunctionName) -> Vec<ResolvedFunction> {
        let keyspace = self.keyspace_of_call(name);
        keyspace.map(|keyspace| keyspace.user_functions.candidates(name.name.as_str())).unwrap_or_default()
    }

    /// The same as definitions. `None`: there are none.
    pub fn called(&self, name: &ast::FunctionName) -> Option<CalledFunctions> {
        let keyspace = self.keyspace_of_call(name)?;
        let name = name.name.as_str();
        let meanings = keyspace.user_functions.meanings(name);
        (!meanings.is_empty()).then(|| CalledFunctions {
            keyspace: keyspace.name.clone(),
            name: name.to_owned(),
            meanings,
        })
    }

    fn keyspace_of_call(&self, name: &ast::FunctionName) -> Option<&Arc<Keyspace>> {
        let keyspace = name.keyspace.as_ref().map(ast::Identifier::as_str).or(self.keyspace)?;
        self.catalog.keyspace(keyspace)
    }
}

/// The keyspace of a name: its own, or else the session's.
pub fn keyspace_of<'a>(name: &'a ast::QualifiedName, session: Option<&'a str>) -> Result<&'a str> {
    name.keyspace.as_ref().map(ast::Identifier::as_str).or(session).ok_or_else(|| {
        RequestError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        )
    })
}

/// The table of a name.
pub fn table_of<'a>(
    catalog: &'a Catalog,
    name: &ast::QualifiedName,
    session: Option<&str>,
) -> Result<(&'a Arc<Keyspace>, &'a Arc<Table>)> {
    let keyspace_name = keyspace_of(name, session)?;
    let keyspace = catalog
        .keyspace(keyspace_name)
        .ok_or_else(|| RequestError::invalid(format!("keyspace {keyspace_name} does not exist")))?;
    let table = keyspace
        .tables
        .get(name.name.as_str())
        .ok_or_else(|| RequestError::invalid(format!("table {} does not exist", name.name.as_str())))?;
    Ok((keyspace, table))
}

/// The index in [`Table::columns`] of a column named in a statement.
pub fn column_of(table: &Table, name: &ast::Identifier) -> Result<usize> {
    table.column_index(name.as_str()).ok_or_else(|| {
        RequestError::invalid(format!("Undefined column name {name} in table {}", table.full_name()))
    })
}

/// The names of columns, separated by commas.
pub fn list_names<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    columns.into_iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A type as written in a term (`(type) value`).
pub fn resolve_type(name: &ast::CqlTypeName, scope: &NameScope<'_>) -> Result<CqlType> {
    Ok(match name {
        ast::CqlTypeName::Native(native) => CqlType::native(native.name())
            .ok_or_else(|| RequestError::invalid(format!("Unknown type {}", native.name())))?,
        ast::CqlTypeName::List(element) => CqlType::list(resolve_type(element, scope)?, false),
        ast::CqlTypeName::Set(element) => CqlType::set(resolve_type(element, scope)?, false),
        ast::CqlTypeName::Map(key, value) => {
            CqlType::map(resolve_type(key, scope)?, resolve_type(value, scope)?, false)
        }
        ast::CqlTypeName::Tuple(fields) => {
            CqlType::tuple(fields.iter().map(|field| resolve_type(field, scope)).collect::<Result<Vec<_>>>()?)
        }
        ast::CqlTypeName::Vector(element, dimension) => {
            CqlType::vector(resolve_type(element, scope)?, *dimension as usize)
        }
        ast::CqlTypeName::Frozen(inner) => resolve_type(inner, scope)?.freeze(),
        ast::CqlTypeName::User(name) => {
            let unknown = || RequestError::invalid(format!("Unknown type {name}"));
            let keyspace =
                name.keyspace.as_ref().map(ast::Identifier::as_str).or(scope.keyspace).ok_or_else(unknown)?;
            let unknown = || RequestError::invalid(format!("Unknown type {keyspace}.{}", name.name));
            let definition = scope
                .catalog
                .keyspace(keyspace)
                .and_then(|keyspace| keyspace.user_type(name.name.as_str()))
                .ok_or_else(unknown)?;
            CqlType::UserType { definition: definition.clone(), frozen: false }
        }
        ast::CqlTypeName::Custom(class) => ddl::custom_type(class)?,
    })
}

/// The name of an expression as a result column, where functions of users have their keyspace.
pub fn result_name(expression: &ast::Expression, scope: &NameScope<'_>) -> String {
    expression.result_name(&|name| match scope.keyspace {
        Some(keyspace)
            if !functions::exists(name.name.as_str()) && !scope.user_functions(name).is_empty() =>
        {
            keyspace.to_owned()
        }
        _ => "system".to_owned(),
    })
}

/// The name of an expression in messages. Functions without a keyspace are shown as native ones.
pub fn display_name(expression: &ast::Expression) -> String {
    expression.result_name(&|_| "system".to_owned())
}
