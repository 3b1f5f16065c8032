//! What a SELECT returns of each row or group: selectors resolved to columns, functions and aggregates.
//!
//! Invariants:
//! * A [`Selector`] names columns by their slot in [`Fetched`]: only what is needed is read from a row.
//! * Every result column has a type and the name that Cassandra gives it.

mod names;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

pub use self::names::display_name;
use super::names::{Scope, column_of, resolve_type};
use super::term::{self, Markers, Receiver, Term, is_assignable};
use crate::error::{RequestError, Result};
use crate::functions::{self, AggregateFunction, ResolvedFunction};
use crate::schema::catalog::Table;

/// The columns that a statement reads of a row, each with a slot.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// Slot to index in [`Table::columns`].
    pub columns: Vec<usize>,
    /// Slots whose cells' timestamps and expiries are read as well.
    pub with_times: Vec<bool>,
}

impl Fetched {
    /// The slot of a column, made if it has none yet.
    pub fn slot(&mut self, column: usize) -> usize {
        if let Some(slot) = self.slot_of(column) {
            return slot;
        }
        self.columns.push(column);
        self.with_times.push(false);
        self.columns.len() - 1
    }

    pub fn slot_of(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|&fetched| fetched == column)
    }
}

/// A value computed from a row or a group.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A slot of [`Fetched`].
    Column(usize),
    WriteMetadata {
        kind: ast::WriteMetadata,
        slot: usize,
        part: CellPart,
    },
    Term(Term),
    Function {
        function: ResolvedFunction,
        arguments: Vec<Selector>,
    },
    /// An index in [`Selection::aggregates`].
    Aggregate(usize),
    Field {
        selector: Box<Selector>,
        index: usize,
    },
    Element {
        selector: Box<Selector>,
        collection: CqlType,
        key: Term,
    },
    Slice {
        selector: Box<Selector>,
        collection: CqlType,
        from: Option<Term>,
        to: Option<Term>,
    },
    List(Vec<Selector>),
    Set(CqlType, Vec<Selector>),
    Map(CqlType, Vec<(Selector, Selector)>),
    Fields(Vec<Option<Selector>>),
    Vector(CqlType, Vec<Selector>),
}

/// Which cells of a column WRITETIME and TTL speak of.
#[derive(Debug, Clone)]
pub enum CellPart {
    /// The one cell of a simple column.
    Whole,
    /// Every cell of a collection: a list is returned.
    Each,
    /// The cell at a key of a set or map.
    Key { key: Term, key_type: CqlType },
    /// The cell of a field of a user type.
    Field(u16),
}

/// An aggregate and what it is fed with.
#[derive(Debug, Clone)]
pub struct Aggregate {
    pub function: AggregateFunction,
    pub arguments: Vec<Selector>,
}

/// A column of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultColumn {
    pub name: String,
    pub column_type: CqlType,
}

/// Everything between SELECT and FROM.
#[derive(Debug, Clone)]
pub struct Selection {
    pub selectors: Vec<Selector>,
    pub columns: Vec<ResultColumn>,
    pub aggregates: Vec<Aggregate>,
}

impl Selection {
    /// The slots to copy, where the selection is nothing but columns.
    pub fn plain_slots(&self) -> Option<Vec<usize>> {
        self.selectors
            .iter()
            .map(|selector| match selector {
                Selector::Column(slot) => Some(*slot),
                _ => None,
            })
            .collect()
    }
}

/// Resolves selectors of one statement.
pub struct SelectionResolver<'a> {
    pub scope: Scope<'a>,
    pub table: &'a Table,
    pub markers: &'a mut Markers,
    pub fetched: &'a mut Fetched,
    aggregates: Vec<Aggregate>,
    inside_aggregate: bool,
}

impl<'a> SelectionResolver<'a> {
    pub fn new(
        scope: Scope<'a>,
        table: &'a Table,
        markers: &'a mut Markers,
        fetched: &'a mut Fetched,
    ) -> Self {
        Self { scope, table, markers, fetched, aggregates: Vec::new(), inside_aggregate: false }
    }

    /// Resolves the whole clause.
    pub fn resolve(mut self, clause: &ast::SelectClause) -> Result<Selection> {
        let (mut selectors, mut columns) = (Vec::new(), Vec::new());
        match clause {
            ast::SelectClause::All => {
                for (index, column) in self.table.columns.iter().enumerate() {
                    selectors.push(Selector::Column(self.fetched.slot(index)));
                    columns.push(ResultColumn {
                        name: column.name.clone(),
                        column_type: column.column_type.clone(),
                    });
                }
            }
            ast::SelectClause::Items(items) => {
                for item in items {
                    let (selector, column_type) = self.selector(&item.selector, None)?;
                    let name = item
                        .alias
                        .as_ref()
                        .map_or_else(|| self.name_of(&item.selector), |alias| alias.as_str().to_owned());
                    selectors.push(selector);
                    columns.push(ResultColumn { name, column_type });
                }
            }
        }
        Ok(Selection { selectors, columns, aggregates: self.aggregates })
    }

    /// The name of a result column: a cast of a column to its own type is the column.
    fn name_of(&self, selector: &ast::Selector) -> String {
        if let ast::Selector::Cast { selector: operand, target } = selector
            && let ast::Selector::Column(name) = operand.as_ref()
            && let Ok(index) = column_of(self.table, name)
            && CqlType::native(target.name()).as_ref() == Some(&self.table.columns[index].column_type)
        {
            return display_name(operand);
        }
        display_name(selector)
    }

    /// Resolves one selector; `hint` is the type asked for where the selector has none of its own.
    pub fn selector(
        &mut self,
        selector: &ast::Selector,
        hint: Option<&CqlType>,
    ) -> Result<(Selector, CqlType)> {
        match selector {
            ast::Selector::Column(name) => {
                let index = column_of(self.table, name)?;
                Ok((
                    Selector::Column(self.fetched.slot(index)),
                    self.table.columns[index].column_type.clone(),
                ))
            }
            ast::Selector::Literal(_) | ast::Selector::Marker(_) => {
                let natural = match selector {
                    ast::Selector::Literal(literal) => term::literal_type(literal),
                    _ => None,
                };
                let value_type = hint.cloned().or(natural).ok_or_else(|| {
                    RequestError::invalid(format!("Cannot infer type for term {selector} in selection clause (try using a cast to force a type)"))
                })?;
                self.term(selector, value_type)
            }
            ast::Selector::CountRows => {
                let function = functions::resolve_aggregate("count", &[])?
                    .ok_or_else(|| RequestError::invalid("count is not an aggregate"))?;
                Ok(self.aggregate(function, Vec::new()))
            }
            ast::Selector::WriteMetadata { kind, target } => self.write_metadata(*kind, target),
            ast::Selector::Cast { selector, target } => {
                let target = CqlType::native(target.name())
                    .ok_or_else(|| RequestError::invalid(format!("Unknown type {}", target.name())))?;
                let (operand, operand_type) = self.selector(selector, Some(&target))?;
                let function = functions::resolve_cast(&operand_type, &target)?;
                Ok((Selector::Function { function, arguments: vec![operand] }, target))
            }
            ast::Selector::Function { name, arguments } => {
                if name.name == "token" && name.keyspace.as_ref().is_none_or(|keyspace| *keyspace == "system")
                {
                    return self.token(arguments);
                }
                let qualified = functions::qualified_name(
                    name.keyspace.as_ref().map(ast::Identifier::as_str),
                    name.name.as_str(),
                );
                let arguments: Vec<&ast::Selector> = arguments.iter().collect();
                self.function(&qualified, &arguments, hint)
            }
            ast::Selector::Arithmetic { left, operator, right } => {
                self.function(term::operator_name(*operator), &[left, right], hint)
            }
            ast::Selector::Negation(operand) => self.function(functions::NEGATION, &[operand], hint),
            ast::Selector::Field { selector, field } => {
                let (inner, inner_type) = self.selector(selector, None)?;
                let CqlType::UserType { definition, .. } = &inner_type else {
                    return Err(RequestError::invalid(format!(
                        "Invalid field selection: {} of type {inner_type} is not a user type",
                        display_name(selector)
                    )));
                };
                let index = definition.field_index(field.as_str()).ok_or_else(|| {
                    RequestError::invalid(format!("{inner_type} of type {inner_type} has no field {field}"))
                })?;
                let field_type = definition.field_types[index].clone();
                Ok((Selector::Field { selector: Box::new(inner), index }, field_type))
            }
            ast::Selector::Element { selector, key } => {
                let (inner, collection) = self.selector(selector, None)?;
                let (key_type, value_type) = element_types(&collection, selector, "Element")?;
                let receiver = Receiver::new(format!("{}[{key}]", display_name(selector)), key_type);
                let key = term::resolve(key, &receiver, &self.scope, self.markers)?;
                Ok((Selector::Element { selector: Box::new(inner), collection, key }, value_type))
            }
            ast::Selector::Slice { selector, from, to } => {
                let (inner, collection) = self.selector(selector, None)?;
                let (key_type, _) = element_types(&collection, selector, "Slice")?;
                let receiver = Receiver::new(display_name(selector), key_type);
                let mut bound = |bound: &Option<ast::Term>| {
                    bound
                        .as_ref()
                        .map(|bound| term::resolve(bound, &receiver, &self.scope, self.markers))
                        .transpose()
                };
                let (from, to) = (bound(from)?, bound(to)?);
                let result = collection.clone();
                Ok((Selector::Slice { selector: Box::new(inner), collection, from, to }, result))
            }
            ast::Selector::TypeHint { type_name, selector } => {
                let hinted = resolve_type(type_name, &self.scope)?;
                let (inner, actual) = self.selector(selector, Some(&hinted))?;
                if !is_assignable(&hinted, &actual) {
                    return Err(RequestError::invalid(format!(
                        "Cannot assign value {} of type {actual} to type {hinted}",
                        display_name(selector)
                    )));
                }
                Ok((inner, hinted))
            }
            ast::Selector::List(items) => self.list(items, hint),
            ast::Selector::Set(items) => match hint {
                Some(CqlType::Map { key, .. }) if items.is_empty() => {
                    Ok((Selector::Map((**key).clone(), Vec::new()), hint.cloned().unwrap_or(CqlType::Blob)))
                }
                _ => {
                    let hint = match hint {
                        Some(CqlType::Set { element, .. }) => Some((**element).clone()),
                        _ => None,
                    };
                    let (items, element) = self.items(items, hint)?;
                    Ok((Selector::Set(element.clone(), items), CqlType::set(element, true)))
                }
            },
            ast::Selector::MapOrUserType(entries) => self.map_or_user_type(entries, hint),
            ast::Selector::Tuple(items) => {
                if let [single] = &items[..]
                    && !matches!(hint, Some(CqlType::Tuple(_)))
                {
                    return self.selector(single, hint);
                }
                let mut fields = Vec::with_capacity(items.len());
                let mut types = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let part = match hint {
                        Some(CqlType::Tuple(types)) => types.get(index),
                        _ => None,
                    };
                    let (field, field_type) = self.selector(item, part)?;
                    fields.push(Some(field));
                    types.push(field_type);
                }
                Ok((Selector::Fields(fields), CqlType::tuple(types)))
            }
        }
    }

    fn term(&mut self, selector: &ast::Selector, value_type: CqlType) -> Result<(Selector, CqlType)> {
        let term = match selector {
            ast::Selector::Literal(literal) => ast::Term::Literal(literal.clone()),
            ast::Selector::Marker(marker) => ast::Term::Marker(marker.clone()),
            _ => return Err(RequestError::invalid(format!("{selector} is not a term"))),
        };
        let receiver = Receiver::new("[selection]", value_type.clone());
        Ok((Selector::Term(term::resolve(&term, &receiver, &self.scope, self.markers)?), value_type))
    }

    fn list(&mut self, items: &[ast::Selector], hint: Option<&CqlType>) -> Result<(Selector, CqlType)> {
        match hint {
            Some(CqlType::Vector { element, dimension }) => {
                let (items, element) = self.items(items, Some((**element).clone()))?;
                if items.len() != *dimension {
                    return Err(RequestError::invalid(format!(
                        "Invalid vector literal: expected {dimension} elements, but given {}",
                        items.len()
                    )));
                }
                Ok((Selector::Vector(element.clone(), items), CqlType::vector(element, *dimension)))
            }
            hint => {
                let hint = match hint {
                    Some(CqlType::List { element, .. }) => Some((**element).clone()),
                    _ => None,
                };
                let (items, element) = self.items(items, hint)?;
                Ok((Selector::List(items), CqlType::list(element, true)))
            }
        }
    }

    fn items(&mut self, items: &[ast::Selector], hint: Option<CqlType>) -> Result<(Vec<Selector>, CqlType)> {
        let mut element = hint;
        let mut resolved = Vec::with_capacity(items.len());
        for item in items {
            let (item, item_type) = self.selector(item, element.as_ref())?;
            element.get_or_insert(item_type);
            resolved.push(item);
        }
        let element = element.ok_or_else(|| {
            RequestError::invalid("Cannot infer type for an empty collection in selection clause (try using a cast to force a type)")
        })?;
        Ok((resolved, element))
    }

    fn map_or_user_type(
        &mut self,
        entries: &[(ast::Selector, ast::Selector)],
        hint: Option<&CqlType>,
    ) -> Result<(Selector, CqlType)> {
        if let Some(CqlType::UserType { definition, .. }) = hint {
            let mut fields: Vec<Option<Selector>> = definition.field_names.iter().map(|_| None).collect();
            for (name, value) in entries {
                let index = match name {
                    ast::Selector::Column(name) => definition.field_index(name.as_str()),
                    _ => None,
                };
                let index = index.ok_or_else(|| {
                    RequestError::invalid(format!(
                        "Unknown field '{name}' in value of user defined type {}",
                        definition.name
                    ))
                })?;
                fields[index] = Some(self.selector(value, Some(&definition.field_types[index]))?.0);
            }
            return Ok((Selector::Fields(fields), hint.cloned().unwrap_or(CqlType::Blob)));
        }
        let (mut key_type, mut value_type) = match hint {
            Some(CqlType::Map { key, value, .. }) => (Some((**key).clone()), Some((**value).clone())),
            _ => (None, None),
        };
        let mut resolved = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key, own_key_type) = self.selector(key, key_type.as_ref())?;
            let (value, own_value_type) = self.selector(value, value_type.as_ref())?;
            key_type.get_or_insert(own_key_type);
            value_type.get_or_insert(own_value_type);
            resolved.push((key, value));
        }
        match (key_type, value_type) {
            (Some(key), Some(value)) => {
                Ok((Selector::Map(key.clone(), resolved), CqlType::map(key, value, true)))
            }
            _ => Err(RequestError::invalid("Cannot infer type for an empty map in selection clause")),
        }
    }

    fn token(&mut self, arguments: &[ast::Selector]) -> Result<(Selector, CqlType)> {
        let table = self.table;
        if arguments.len() != table.partition_key_count {
            return Err(RequestError::invalid(format!(
                "Invalid number of arguments in call to function system.token: {} required but {} provided",
                table.partition_key_count,
                arguments.len()
            )));
        }
        let mut resolved = Vec::with_capacity(arguments.len());
        for (index, (argument, column)) in arguments.iter().zip(table.partition_key()).enumerate() {
            let (selector, actual) = self.selector(argument, Some(&column.column_type))?;
            if !is_assignable(&column.column_type, &actual) {
                return Err(RequestError::invalid(format!(
                    "Type error: {} cannot be passed as argument {index} of function system.token of type {}",
                    display_name(argument),
                    column.column_type
                )));
            }
            resolved.push(selector);
        }
        Ok((
            Selector::Function { function: functions::token(resolved.len()), arguments: resolved },
            CqlType::Bigint,
        ))
    }

    fn function(
        &mut self,
        name: &str,
        arguments: &[&ast::Selector],
        hint: Option<&CqlType>,
    ) -> Result<(Selector, CqlType)> {
        let is_open = |argument: &&ast::Selector| {
            matches!(argument, ast::Selector::Literal(_) | ast::Selector::Marker(_))
        };
        if !functions::exists(name) {
            return Err(RequestError::invalid(format!("Unknown function '{name}'")));
        }
        let is_aggregate = functions::is_aggregate(name);
        if is_aggregate && self.inside_aggregate {
            return Err(RequestError::invalid(
                "aggregate functions cannot be used as arguments of aggregate functions",
            ));
        }
        self.inside_aggregate |= is_aggregate;
        let mut resolved = Vec::with_capacity(arguments.len());
        for argument in arguments {
            resolved.push(if is_open(argument) { None } else { Some(self.selector(argument, None)?) });
        }
        let known: Vec<Option<CqlType>> =
            resolved.iter().map(|argument| argument.as_ref().map(|(_, own)| own.clone())).collect();
        if is_aggregate {
            self.inside_aggregate = false;
            // `count(1)`: the constant only says that there is a row.
            let types: Vec<CqlType> = known.iter().flatten().cloned().collect();
            let resolved: Vec<Selector> =
                resolved.into_iter().flatten().map(|(argument, _)| argument).collect();
            let function = functions::resolve_aggregate(name, &types)?
                .ok_or_else(|| RequestError::invalid(format!("Unknown function '{name}'")))?;
            return Ok(self.aggregate(function, resolved));
        }
        let natural: Vec<Option<CqlType>> = arguments
            .iter()
            .map(|argument| match argument {
                ast::Selector::Literal(literal) => term::literal_type(literal),
                _ => None,
            })
            .collect();
        let texts: Vec<String> = arguments.iter().map(|argument| display_name(argument)).collect();
        let function = functions::resolve_described(name, &known, &natural, &texts, hint)?;
        let mut inputs = Vec::with_capacity(arguments.len());
        for (index, argument) in resolved.into_iter().enumerate() {
            inputs.push(match argument {
                Some((argument, _)) => argument,
                None => self.term(arguments[index], function.argument_types()[index].clone())?.0,
            });
        }
        let return_type = function.return_type().clone();
        Ok((Selector::Function { function, arguments: inputs }, return_type))
    }

    fn aggregate(&mut self, function: AggregateFunction, arguments: Vec<Selector>) -> (Selector, CqlType) {
        let return_type = function.return_type().clone();
        self.aggregates.push(Aggregate { function, arguments });
        (Selector::Aggregate(self.aggregates.len() - 1), return_type)
    }

    fn write_metadata(
        &mut self,
        kind: ast::WriteMetadata,
        target: &ast::Selector,
    ) -> Result<(Selector, CqlType)> {
        let (name, part) = match target {
            ast::Selector::Column(name) => (name, None),
            ast::Selector::Field { selector, .. } | ast::Selector::Element { selector, .. } => {
                match &**selector {
                    ast::Selector::Column(name) => (name, Some(target)),
                    _ => {
                        return Err(RequestError::invalid(format!(
                            "Cannot use selection function {} on {target}",
                            function_name(kind)
                        )));
                    }
                }
            }
            _ => {
                return Err(RequestError::invalid(format!(
                    "Cannot use selection function {} on {target}",
                    function_name(kind)
                )));
            }
        };
        let index = column_of(self.table, name)?;
        let column = &self.table.columns[index];
        if column.is_primary_key() {
            return Err(RequestError::invalid(format!(
                "Cannot use selection function {} on PRIMARY KEY part {}",
                function_name(kind),
                column.name
            )));
        }
        let value_type = if kind == ast::WriteMetadata::Ttl { CqlType::Int } else { CqlType::Bigint };
        let is_multi_cell = column.column_type.is_multi_cell();
        let (part, result) = match part {
            Some(ast::Selector::Element { key, .. }) if is_multi_cell => {
                let (key_type, _) = element_types(&column.column_type, target, "Element")?;
                let receiver = Receiver::new(column.name.clone(), key_type);
                let key_type = receiver.value_type.clone();
                let key = term::resolve(key, &receiver, &self.scope, self.markers)?;
                (CellPart::Key { key, key_type }, value_type)
            }
            Some(ast::Selector::Field { field, .. }) if is_multi_cell => {
                let CqlType::UserType { definition, .. } = &column.column_type else {
                    return Err(RequestError::invalid(format!("{} is not a user type", column.name)));
                };
                let field_index = definition.field_index(field.as_str()).ok_or_else(|| {
                    RequestError::invalid(format!("{} has no field {field}", column.column_type))
                })?;
                (CellPart::Field(field_index as u16), value_type)
            }
            None if is_multi_cell && kind != ast::WriteMetadata::MaxWritetime => {
                (CellPart::Each, CqlType::list(value_type, true))
            }
            Some(_) | None => (CellPart::Whole, value_type),
        };
        let slot = self.fetched.slot(index);
        self.fetched.with_times[slot] = true;
        Ok((Selector::WriteMetadata { kind, slot, part }, result))
    }
}

fn function_name(kind: ast::WriteMetadata) -> &'static str {
    match kind {
        ast::WriteMetadata::Writetime => "writetime",
        ast::WriteMetadata::MaxWritetime => "maxwritetime",
        ast::WriteMetadata::Ttl => "ttl",
    }
}

/// The types of a collection's keys and of what stands at a key.
fn element_types(collection: &CqlType, selector: &ast::Selector, kind: &str) -> Result<(CqlType, CqlType)> {
    match collection {
        CqlType::Map { key, value, .. } => Ok(((**key).clone(), (**value).clone())),
        CqlType::Set { element, .. } => Ok(((**element).clone(), (**element).clone())),
        CqlType::List { .. } => Err(RequestError::invalid(format!(
            "{kind} selection is only allowed on sets and maps, but {} is a list",
            display_name(selector)
        ))),
        _ => Err(RequestError::invalid(format!(
            "Invalid {} selection: {} of type {collection} is not a collection",
            kind.to_lowercase(),
            display_name(selector)
        ))),
    }
}
