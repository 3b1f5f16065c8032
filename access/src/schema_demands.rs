//! What statements that change the schema demand, and what their execution makes.
//!
//! Invariant: a statement whose names cannot be resolved demands nothing: its execution says what is wrong with them.

use cql_lite::syntax::ast::{
    AlterView, CqlTypeName, CreateAggregate, DropFunction, DropView, FunctionName, Identifier, QualifiedName,
    Statement,
};
use helenus_query::functions::user::type_names;
use helenus_query::schema::catalog::{Catalog, Keyspace};
use helenus_query::schema::ddl::{ChangeTarget, ChangeType, SchemaChangeEvent, resolve_type};
use helenus_roles::{FunctionSignature, Permission, Resource};

use crate::demand::Demand;
use crate::view_demands::{of_change, of_create};

const CREATE_TRIGGER: &str = "Only superusers are allowed to perform CREATE TRIGGER queries";
// Cassandra's spelling.
const DROP_TRIGGER: &str = "Only superusers are allowed to perfrom DROP TRIGGER queries";

/// The demands of a statement. `default`: the keyspace of names without one.
pub fn schema_demands(statement: &Statement, default: Option<&str>, catalog: &Catalog) -> Vec<Demand> {
    let names = Names { default, catalog };
    names.demands(statement).unwrap_or_default()
}

struct Names<'a> {
    default: Option<&'a str>,
    catalog: &'a Catalog,
}

impl Names<'_> {
    fn demands(&self, statement: &Statement) -> Option<Vec<Demand>> {
        use Permission::{Alter, Create, Drop};
        let keyspace = |name: &Identifier| Resource::Keyspace(name.as_str().to_owned());
        Some(match statement {
            Statement::CreateKeyspace(_) => vec![Demand::new(Create, Resource::AllKeyspaces)],
            Statement::AlterKeyspace(alter) => vec![Demand::new(Alter, keyspace(&alter.keyspace))],
            Statement::DropKeyspace(drop) => vec![Demand::new(Drop, keyspace(&drop.keyspace))],
            Statement::CreateTable(create) => vec![Demand::new(Create, self.tables_of(&create.table)?)],
            Statement::CopyTable(copy) => vec![
                Demand::new(Create, self.tables_of(&copy.table)?),
                Demand::new(Permission::Select, self.table(&copy.source)?),
            ],
            Statement::CreateType(create) => vec![Demand::new(Create, self.tables_of(&create.name)?)],
            Statement::AlterType(alter) => vec![Demand::new(Alter, self.tables_of(&alter.name)?)],
            Statement::DropType(drop) => vec![Demand::new(Drop, self.tables_of(&drop.name)?)],
            Statement::AlterTable(alter) => vec![Demand::new(Alter, self.table(&alter.table)?)],
            Statement::DropTable(drop) => vec![Demand::new(Drop, self.table(&drop.table)?)],
            Statement::CreateIndex(create) => vec![Demand::new(Alter, self.table(&create.table)?)],
            Statement::DropIndex(drop) => vec![Demand::new(Alter, self.table_of_index(&drop.name)?)],
            Statement::CreateView(create) => {
                let written = create.name.keyspace.as_ref();
                let keyspace =
                    self.keyspace_of(written).or(create.from.keyspace.as_ref().map(Identifier::as_str));
                of_create(keyspace?, create, self.catalog)
            }
            Statement::AlterView(AlterView { name, .. }) | Statement::DropView(DropView { name, .. }) => {
                of_change(self.keyspace_of(name.keyspace.as_ref())?, name.name.as_str(), self.catalog)
            }
            Statement::CreateFunction(create) => {
                let arguments = create.arguments.iter().map(|(_, argument)| argument);
                vec![self.create_function(&create.name, create.or_replace, arguments)?]
            }
            Statement::CreateAggregate(create) => self.create_aggregate(create)?,
            Statement::DropFunction(drop) => self.drop_functions(drop, false)?,
            Statement::DropAggregate(drop) => self.drop_functions(drop, true)?,
            Statement::CreateTrigger(_) => vec![Demand::Superuser { refusal: CREATE_TRIGGER }],
            Statement::DropTrigger(_) => vec![Demand::Superuser { refusal: DROP_TRIGGER }],
            _ => Vec::new(),
        })
    }

    fn keyspace_of<'n>(&'n self, written: Option<&'n Identifier>) -> Option<&'n str> {
        written.map(Identifier::as_str).or(self.default)
    }

    fn tables_of(&self, name: &QualifiedName) -> Option<Resource> {
        Some(Resource::AllTables(self.keyspace_of(name.keyspace.as_ref())?.to_owned()))
    }

    fn table(&self, name: &QualifiedName) -> Option<Resource> {
        Some(Resource::table(self.keyspace_of(name.keyspace.as_ref())?, name.name.as_str()))
    }

    fn table_of_index(&self, name: &QualifiedName) -> Option<Resource> {
        let keyspace = self.catalog.keyspace(self.keyspace_of(name.keyspace.as_ref())?)?;
        let has_index = |index: &str| index == name.name.as_str();
        let table = keyspace
            .tables
            .values()
            .find(|table| table.indexes.iter().any(|index| has_index(&index.name)))?;
        Some(Resource::table(&keyspace.name, &table.name))
    }

    fn create_function<'t>(
        &self,
        name: &FunctionName,
        or_replace: bool,
        arguments: impl IntoIterator<Item = &'t CqlTypeName>,
    ) -> Option<Demand> {
        let keyspace = self.keyspace_of(name.keyspace.as_ref())?;
        let known = self.catalog.keyspace(keyspace);
        let replaced = known.and_then(|known| signature(known, name.name.as_str(), arguments));
        let replaced = replaced.filter(|function| {
            let functions = known.map(|known| &known.user_functions);
            or_replace
                && functions.is_some_and(|functions| functions.has(&function.name, &function.argument_types))
        });
        Some(match replaced {
            Some(function) => Demand::new(Permission::Alter, Resource::Function(function)),
            None => Demand::new(Permission::Create, Resource::FunctionsOf(keyspace.to_owned())),
        })
    }

    fn create_aggregate(&self, create: &CreateAggregate) -> Option<Vec<Demand>> {
        let mut demands =
            vec![self.create_function(&create.name, create.or_replace, &create.argument_types)?];
        let keyspace = self.catalog.keyspace(self.keyspace_of(create.name.keyspace.as_ref())?);
        if let Some(keyspace) = keyspace {
            let state_arguments = std::iter::once(&create.state_type).chain(&create.argument_types);
            let state_function = signature(keyspace, create.state_function.as_str(), state_arguments);
            let final_function = create
                .final_function
                .as_ref()
                .and_then(|function| signature(keyspace, function.as_str(), [&create.state_type]));
            let executed = state_function.into_iter().chain(final_function);
            demands.extend(
                executed.map(|function| Demand::new(Permission::Execute, Resource::Function(function))),
            );
        }
        Some(demands)
    }

    fn drop_functions(&self, drop: &DropFunction, is_aggregate: bool) -> Option<Vec<Demand>> {
        let keyspace = self.catalog.keyspace(self.keyspace_of(drop.name.keyspace.as_ref())?)?;
        let (known, name) = (&keyspace.user_functions, drop.name.name.as_str());
        let functions =
            known.functions_named(name).filter(|_| !is_aggregate).map(|function| function.signature());
        let aggregates =
            known.aggregates_named(name).filter(|_| is_aggregate).map(|aggregate| aggregate.signature());
        let wanted = match &drop.argument_types {
            Some(arguments) => Some(signature(keyspace, name, arguments)?),
            None => None,
        };
        let named = functions
            .chain(aggregates)
            .filter(|function| wanted.as_ref().is_none_or(|wanted| wanted == function));
        Some(named.map(|function| Demand::new(Permission::Drop, Resource::Function(function))).collect())
    }
}

/// A function by its name and the types as written. `None`: a type does not exist.
pub(crate) fn signature<'t>(
    keyspace: &Keyspace,
    name: &str,
    arguments: impl IntoIterator<Item = &'t CqlTypeName>,
) -> Option<FunctionSignature> {
    let types = arguments.into_iter().map(|argument| resolve_type(argument, keyspace).ok());
    Some(FunctionSignature {
        keyspace: keyspace.name.clone(),
        name: name.to_owned(),
        argument_types: type_names(&types.collect::<Option<Vec<_>>>()?),
    })
}

/// What a change has made, on which who made it gets all permissions. `after`: the catalog with it. Nobody needs any on a view.
pub fn created_resources(event: &SchemaChangeEvent, after: &Catalog) -> Vec<Resource> {
    if event.change_type != ChangeType::Created {
        return Vec::new();
    }
    let is_view = || after.table(&event.keyspace, &event.name).is_some_and(|table| table.view.is_some());
    match event.target {
        ChangeTarget::Keyspace => {
            vec![Resource::Keyspace(event.keyspace.clone()), Resource::FunctionsOf(event.keyspace.clone())]
        }
        ChangeTarget::Table if is_view() => Vec::new(),
        ChangeTarget::Table => vec![Resource::table(&event.keyspace, &event.name)],
        ChangeTarget::Function | ChangeTarget::Aggregate => vec![Resource::Function(FunctionSignature {
            keyspace: event.keyspace.clone(),
            name: event.name.clone(),
            argument_types: event.arguments.clone(),
        })],
        ChangeTarget::Type => Vec::new(),
    }
}
