//! Resources as statements name them, and their names in Cassandra's tables.

use cql_lite::syntax::{SyntaxError, ast, parse_type};
use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::ddl::resolve_type;
use helenus_query::schema::system_keyspaces::SYSTEM;
use helenus_roles::{Fate, FunctionSignature, PermissionSet, Resource, Roles};

use crate::schema_demands::signature;

/// The resource that a statement names. The columns of a table come with the permissions. `default`: the keyspace of tables without one.
pub(crate) fn resolve(named: &ast::Resource, default: Option<&str>, catalog: &Catalog) -> Result<Resource> {
    let text = |name: &ast::Identifier| name.as_str().to_owned();
    Ok(match named {
        ast::Resource::AllKeyspaces => Resource::AllKeyspaces,
        ast::Resource::Keyspace(keyspace) => Resource::Keyspace(text(keyspace)),
        ast::Resource::AllTables(keyspace) => Resource::AllTables(text(keyspace)),
        ast::Resource::Table(name) => {
            let keyspace = name.keyspace.as_ref().map(ast::Identifier::as_str).or(default);
            let keyspace = keyspace.ok_or_else(|| {
                RequestError::invalid(
                    "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
                )
            })?;
            Resource::table(keyspace, name.name.as_str())
        }
        ast::Resource::AllRoles => Resource::AllRoles,
        ast::Resource::Role(role) => Resource::Role(text(role)),
        ast::Resource::AllFunctions => Resource::AllFunctions,
        ast::Resource::AllFunctionsIn(keyspace) if *keyspace == SYSTEM => return Err(builtin_functions()),
        ast::Resource::AllFunctionsIn(keyspace) => Resource::FunctionsOf(text(keyspace)),
        ast::Resource::Function { name, argument_types } => function(name, argument_types, catalog)?,
        ast::Resource::AllMbeans => Resource::AllMbeans,
        ast::Resource::Mbean(name) | ast::Resource::Mbeans(name) => Resource::Mbean(name.clone()),
    })
}

fn function(
    name: &ast::FunctionName,
    argument_types: &[ast::CqlTypeName],
    catalog: &Catalog,
) -> Result<Resource> {
    let Some(keyspace) = &name.keyspace else {
        return Err(RequestError::invalid(
            "In this context function name must be explictly qualified by a keyspace",
        ));
    };
    if *keyspace == SYSTEM {
        return Err(builtin_functions());
    }
    let known = catalog.keyspace(keyspace.as_str());
    if let Some(known) = known {
        // Says which type does not exist.
        argument_types.iter().try_for_each(|argument| resolve_type(argument, known).map(drop))?;
    }
    let found = known.and_then(|known| signature(known, name.name.as_str(), argument_types));
    Ok(Resource::Function(found.unwrap_or_else(|| FunctionSignature {
        keyspace: keyspace.as_str().to_owned(),
        name: name.name.as_str().to_owned(),
        argument_types: argument_types.iter().map(ToString::to_string).collect(),
    })))
}

/// Permissions on a resource as a statement names them.
pub(crate) fn named(
    resource: &Resource,
    permissions: PermissionSet,
) -> std::result::Result<(ast::GrantedPermissions, ast::Resource), SyntaxError> {
    let name = |name: &str| ast::Identifier::quoted(name);
    let mut columns = Vec::new();
    let named = match resource {
        Resource::AllKeyspaces => ast::Resource::AllKeyspaces,
        Resource::Keyspace(keyspace) => ast::Resource::Keyspace(name(keyspace)),
        Resource::AllTables(keyspace) => ast::Resource::AllTables(name(keyspace)),
        Resource::Table { keyspace, table } => {
            ast::Resource::Table(ast::QualifiedName { keyspace: Some(name(keyspace)), name: name(table) })
        }
        Resource::Column { keyspace, table, column } => {
            columns.push(name(column));
            ast::Resource::Table(ast::QualifiedName { keyspace: Some(name(keyspace)), name: name(table) })
        }
        Resource::AllFunctions => ast::Resource::AllFunctions,
        Resource::FunctionsOf(keyspace) => ast::Resource::AllFunctionsIn(name(keyspace)),
        Resource::Function(function) => ast::Resource::Function {
            name: ast::FunctionName { keyspace: Some(name(&function.keyspace)), name: name(&function.name) },
            argument_types: function
                .argument_types
                .iter()
                .map(|text| parse_type(text))
                .collect::<std::result::Result<_, _>>()?,
        },
        Resource::AllRoles => ast::Resource::AllRoles,
        Resource::Role(role) => ast::Resource::Role(name(role)),
        Resource::AllMbeans => ast::Resource::AllMbeans,
        Resource::Mbean(pattern) => ast::Resource::Mbeans(pattern.clone()),
    };
    let each =
        permissions.iter().map(|permission| ast::GrantedPermission { permission, columns: columns.clone() });
    Ok((ast::GrantedPermissions::Some(each.collect()), named))
}

fn builtin_functions() -> RequestError {
    RequestError::invalid("Altering permissions on builtin functions is not supported")
}

/// Whether a resource exists.
pub fn exists(resource: &Resource, roles: &Roles, catalog: &Catalog) -> bool {
    let keyspace = |name: &str| catalog.keyspace(name);
    match resource {
        Resource::AllKeyspaces
        | Resource::AllFunctions
        | Resource::AllRoles
        | Resource::AllMbeans
        | Resource::Mbean(_) => true,
        Resource::Role(role) => roles.role(role).is_some(),
        Resource::Keyspace(name) | Resource::AllTables(name) | Resource::FunctionsOf(name) => {
            keyspace(name).is_some()
        }
        Resource::Table { keyspace: name, table } => {
            keyspace(name).is_some_and(|keyspace| keyspace.tables.contains_key(table))
        }
        Resource::Column { keyspace: name, table, column } => keyspace(name)
            .and_then(|keyspace| keyspace.tables.get(table))
            .is_some_and(|table| table.column_index(column).is_some()),
        Resource::Function(function) => keyspace(&function.keyspace)
            .is_some_and(|keyspace| keyspace.user_functions.has(&function.name, &function.argument_types)),
    }
}

/// What a change of the catalog does to a resource. A column is known by its id, so what is granted on it follows it to another name.
pub fn fate(resource: &Resource, roles: &Roles, before: &Catalog, after: &Catalog) -> Fate {
    let Resource::Column { keyspace, table, column } = resource else {
        return if exists(resource, roles, after) { Fate::Stays } else { Fate::Gone };
    };
    let table_of = |catalog: &Catalog| Some(catalog.keyspace(keyspace)?.tables.get(table)?.clone());
    let name_after = || {
        let (old, new) = (table_of(before)?, table_of(after)?);
        let id = old.columns[old.column_index(column)?].id;
        let same = new.columns.iter().find(|column| column.id == id);
        same.filter(|_| old.id == new.id).map(|column| column.name.clone())
    };
    match name_after() {
        Some(name) if name == *column => Fate::Stays,
        Some(name) => Fate::Renamed(Resource::column(keyspace, table, &name)),
        None => Fate::Gone,
    }
}

/// The name of a resource in the tables of `system_auth`.
pub(crate) fn stored_name(resource: &Resource, catalog: &Catalog) -> String {
    let keyspace = resource.keyspace().and_then(|keyspace| catalog.keyspace(keyspace));
    resource.name(|name| {
        let user_type =
            |user_type: &str| keyspace.and_then(|keyspace| keyspace.types.get(user_type)).cloned();
        // A type that is gone since keeps the name that it had.
        CqlType::parse(name, &user_type).map_or_else(|_| name.to_owned(), |found| found.class_name())
    })
}
