//! The statement of a view against its tables: what each column is computed of, and whether the rules for views hold.
//!
//! Where Cassandra has a rule, the text of the refusal is Cassandra's.

use cql_lite::syntax::ast::{
    Comparison, CreateView, Direction, Expression, FunctionName, Identifier, Relation, SelectClause, Subject,
    ViewKind, WriteMetadata,
};
use cql_lite::syntax::parse;
use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::{Plan, plan};
use helenus_query::schema::catalog::{Catalog, Column, ColumnKind, Table};
use helenus_query::schema::ddl::check_key_column;

use crate::definition::{Condition, Source};
use crate::expression::{unqualified, values, visit};
use crate::names::{Names, is_foreign, named};
use crate::refusal::invalid;

/// The aggregates that a projection can have.
const AGGREGATES: [&str; 7] = ["count", "countrows", "count_rows", "sum", "min", "max", "avg"];

/// A statement of a view, resolved.
pub struct Resolved {
    /// In the order of the selected items.
    pub columns: Vec<ViewColumn>,
    pub unit_columns: usize,
    /// See [`crate::definition::Joined::on`].
    pub on: Vec<usize>,
    pub conditions_of_units: Vec<Condition>,
    pub conditions_of_rows: Vec<Condition>,
    pub is_aggregate: bool,
}

/// A column of a view.
pub struct ViewColumn {
    pub name: String,
    pub source: Source,
    pub column_type: CqlType,
    pub kind: ColumnKind,
    /// The statement names it: it keeps the name when the column that it comes from is renamed.
    pub has_alias: bool,
}

/// How refusals call a view.
pub fn kind_name(kind: ViewKind) -> &'static str {
    match kind {
        ViewKind::Materialized => "materialized view",
        ViewKind::Projection => "projection",
    }
}

/// Resolves a statement whose tables have their keyspaces.
pub fn resolve(
    catalog: &Catalog,
    create: &CreateView,
    base: &Table,
    joined: Option<&Table>,
) -> Result<Resolved> {
    let names = Names::new(create, base, joined)?;
    let resolver = Resolver { catalog, create, names, kind: kind_name(create.kind) };
    resolver.check_base()?;
    let on = resolver.joined_by()?;
    let unit_columns = resolver.unit_columns()?;
    let mut columns = resolver.selected()?;
    resolver.place_keys(&mut columns, unit_columns)?;
    let (conditions_of_units, conditions_of_rows) = resolver.conditions(&columns, unit_columns)?;
    let is_aggregate = !create.group_by.is_empty();
    Ok(Resolved { columns, unit_columns, on, conditions_of_units, conditions_of_rows, is_aggregate })
}

struct Resolver<'a> {
    catalog: &'a Catalog,
    create: &'a CreateView,
    names: Names<'a>,
    kind: &'static str,
}

impl Resolver<'_> {
    fn view(&self) -> &str {
        self.create.name.name.as_str()
    }

    fn is_materialized(&self) -> bool {
        self.create.kind == ViewKind::Materialized
    }

    /// The rules for the tables that a view is computed of.
    fn check_base(&self) -> Result<()> {
        let base = self.names.base();
        if base.is_counter {
            return invalid(match self.create.kind {
                ViewKind::Materialized => "Materialized views are not supported on counter tables",
                ViewKind::Projection => "Projections are not supported on counter tables",
            });
        }
        for table in std::iter::once(base).chain(self.names.joined()) {
            let name = table.full_name();
            if table.view.is_some() {
                return invalid(match self.create.kind {
                    ViewKind::Materialized => {
                        "Materialized views cannot be created against other materialized views".to_owned()
                    }
                    ViewKind::Projection => {
                        format!("Projections cannot be computed of other views yet: {name} is one")
                    }
                });
            }
            if table.options.is_feed_log || table.is_hidden() {
                return invalid(format!("Views cannot be computed of the log {name}"));
            }
            if table.is_counter {
                return invalid(format!("A counter table cannot be joined: {name} is one"));
            }
            if table.compact.is_some() {
                return invalid(format!(
                    "Views are not supported on tables WITH COMPACT STORAGE: {name} is one"
                ));
            }
            if table.options.cap.is_some() {
                return invalid(format!(
                    "Views are not supported on tables with a cap yet: rows that {name} evicts would stay in them"
                ));
            }
        }
        if !self.create.group_by.is_empty() && base.options.default_time_to_live > 0 {
            return invalid(format!(
                "A projection with GROUP BY is not supported on a table with default_time_to_live: when rows of {} expire, \
                 their group would not be computed again",
                base.full_name()
            ));
        }
        // Expressions of views are never evaluated with bind values.
        let items = match &self.create.clause {
            SelectClause::All => &[][..],
            SelectClause::Items(items) => items,
        };
        let selected = items.iter().map(|item| &item.expression);
        for expression in
            selected.chain(self.create.relations.iter().flat_map(|relation| values(unqualified(relation).1)))
        {
            visit(expression, &mut |part| match part {
                Expression::Marker(_) => invalid(format!(
                    "Bind variables are not allowed in CREATE {} statements",
                    self.kind.to_ascii_uppercase()
                )),
                _ => Ok(true),
            })?;
        }
        Ok(())
    }

    /// For each column of the joined table's primary key, the column of the base table that has its value.
    fn joined_by(&self) -> Result<Vec<usize>> {
        let (Some(join), Some(joined)) = (&self.create.join, self.names.joined()) else {
            return Ok(Vec::new());
        };
        let base = self.names.base();
        if joined.id == base.id {
            return invalid(format!("The table {} cannot be joined with itself", base.full_name()));
        }
        let key_length = joined.partition_key_count + joined.clustering_key_count;
        let mut on: Vec<Option<usize>> = vec![None; key_length];
        for (left, right) in &join.on {
            let refused = || {
                invalid(format!(
                    "JOIN … ON takes equalities of a column of {} and a column of the primary key of {}, not {left} = {right}",
                    base.full_name(),
                    joined.full_name()
                ))
            };
            let ((Some(Source::Base(of_base)), Some(Source::Joined(of_joined)))
            | (Some(Source::Joined(of_joined)), Some(Source::Base(of_base)))) =
                (self.names.plain(left)?, self.names.plain(right)?)
            else {
                return refused();
            };
            if of_joined >= key_length {
                return refused();
            }
            let (key, value) = (&joined.columns[of_joined], &base.columns[of_base]);
            if value.is_static() {
                return invalid(format!("The static column {} cannot be compared in JOIN … ON", value.name));
            }
            if key.column_type != value.column_type {
                return invalid(format!(
                    "{left} = {right} compares values of different types: {} is of type {}, {} of type {}",
                    value.name, value.column_type, key.name, key.column_type
                ));
            }
            if on[of_joined].replace(of_base).is_some() {
                return invalid(format!("{} is given twice in JOIN … ON", key.name));
            }
        }
        let missing = on.iter().zip(&joined.columns).filter(|(of_base, _)| of_base.is_none());
        let missing: Vec<&str> = missing.map(|(_, column)| column.name.as_str()).collect();
        if !missing.is_empty() {
            return invalid(format!(
                "JOIN … ON must give the whole primary key of {}: {} is missing",
                joined.full_name(),
                missing.join(", ")
            ));
        }
        Ok(on.into_iter().flatten().collect())
    }

    /// The number of columns of the base table's primary key that name what one row of the view is computed of.
    fn unit_columns(&self) -> Result<usize> {
        let base = self.names.base();
        let key_length = base.partition_key_count + base.clustering_key_count;
        if self.create.group_by.is_empty() {
            return Ok(key_length);
        }
        if self.names.joined().is_some() {
            return invalid("GROUP BY together with JOIN is not supported yet");
        }
        let refused = || {
            invalid(format!(
                "GROUP BY of a projection takes the partition key of {} and then clustering columns in their order: other groups need \
                 a table with that primary key",
                base.full_name()
            ))
        };
        for (position, expression) in self.create.group_by.iter().enumerate() {
            if position >= key_length || self.names.plain(expression)? != Some(Source::Base(position)) {
                return refused();
            }
        }
        if self.create.group_by.len() < base.partition_key_count {
            return refused();
        }
        Ok(self.create.group_by.len())
    }

    /// The columns of the view, not yet with their kinds.
    fn selected(&self) -> Result<Vec<ViewColumn>> {
        let mut columns: Vec<ViewColumn> = Vec::new();
        match &self.create.clause {
            SelectClause::All => {
                if self.names.joined().is_some() || !self.create.group_by.is_empty() {
                    return invalid("SELECT * is not possible with JOIN or GROUP BY: name the columns");
                }
                let all = self.names.base().columns.iter().enumerate();
                // A static column that was added later is not in the view, as in Cassandra.
                for (index, column) in all.filter(|(_, column)| !column.is_static()) {
                    columns.push(view_column(
                        column.name.clone(),
                        Source::Base(index),
                        column.column_type.clone(),
                        false,
                    ));
                }
            }
            SelectClause::Items(items) => {
                for item in items {
                    let column = self.selected_item(&item.expression, item.alias.as_ref())?;
                    match columns.iter().find(|other| other.name == column.name) {
                        None => columns.push(column),
                        // As in Cassandra.
                        Some(other) if self.is_materialized() && other.source == column.source => {}
                        Some(_) => {
                            return invalid(format!(
                                "Two columns of the {} '{}' would have the name {}: give one of them another name with AS",
                                self.kind,
                                self.view(),
                                column.name
                            ));
                        }
                    }
                }
            }
        }
        Ok(columns)
    }

    fn selected_item(&self, expression: &Expression, alias: Option<&Identifier>) -> Result<ViewColumn> {
        if self.is_materialized() {
            if let Some(alias) = alias {
                return invalid(format!(
                    "Cannot use aliases when defining a materialized view (got {expression} as {alias})"
                ));
            }
            if !matches!(expression, Expression::Column(_)) {
                return invalid(format!(
                    "Can only select columns by name when defining a materialized view (got {expression})"
                ));
            }
        }
        if let Some(source) = self.names.plain(expression)? {
            return self.selected_column(source, alias);
        }
        let Some(alias) = alias else {
            return invalid(format!("{expression} needs a name in a projection: write {expression} AS name"));
        };
        let expression = self.names.of_base(expression)?;
        let column_type = self.type_of(&expression)?;
        let source = Source::Expression(expression.to_string());
        Ok(view_column(alias.as_str().to_owned(), source, column_type, true))
    }

    fn selected_column(&self, source: Source, alias: Option<&Identifier>) -> Result<ViewColumn> {
        let Some(column) = self.names.column(&source) else {
            unreachable!("a name is resolved to a column");
        };
        if column.is_static() {
            return invalid(format!(
                "Cannot include static column '{}' in {} '{}'",
                column.name,
                self.kind,
                self.view()
            ));
        }
        if is_foreign(&column.column_type, &self.names.base().keyspace) {
            return invalid(format!(
                "The column {} has a user type of another keyspace, and cannot be in a view",
                column.name
            ));
        }
        let groups = self.create.group_by.len();
        if groups > 0 && !matches!(source, Source::Base(index) if index < groups) {
            return invalid(format!(
                "{} is neither a column of GROUP BY nor in an aggregate: a group has several values of it",
                column.name
            ));
        }
        let name = alias.map_or_else(|| column.name.clone(), |alias| alias.as_str().to_owned());
        Ok(view_column(name, source, column.column_type.clone(), alias.is_some()))
    }

    /// The type of an expression over the base table, which is checked.
    fn type_of(&self, expression: &Expression) -> Result<CqlType> {
        let groups = self.create.group_by.len();
        let base = self.names.base();
        let mut has_aggregate = false;
        visit(expression, &mut |part| match part {
            Expression::WriteMetadata { kind: WriteMetadata::Ttl, .. } => {
                invalid(format!("{part} changes with time, and cannot be in a view"))
            }
            Expression::Column(name) if base.column(name.as_str()).is_some_and(Column::is_static) => {
                invalid(format!(
                    "Cannot include static column '{}' in {} '{}'",
                    name.as_str(),
                    self.kind,
                    self.view()
                ))
            }
            _ if is_aggregate(part) => {
                has_aggregate = true;
                // Its arguments are checked by the plan.
                Ok(groups == 0)
            }
            Expression::Column(name)
                if groups > 0 && base.column_index(name.as_str()).is_none_or(|index| index >= groups) =>
            {
                invalid(format!(
                    "{name} is neither a column of GROUP BY nor in an aggregate: a group has several values of it"
                ))
            }
            _ => Ok(true),
        })?;
        if has_aggregate && groups == 0 {
            return invalid(format!("{expression} is an aggregate, which needs GROUP BY in a projection"));
        }
        let group_by = base.columns[..groups].iter().map(|column| named(column).to_string());
        let group_by = group_by.collect::<Vec<_>>().join(", ");
        let group_by = if groups > 0 { format!(" GROUP BY {group_by}") } else { String::new() };
        let select = self.planned(&format!("SELECT {expression} FROM {}{group_by}", table_name(base)))?;
        let selection = &select.selection;
        let arguments = selection.aggregates.iter().flat_map(|aggregate| &aggregate.arguments);
        if !selection.selectors.iter().chain(arguments).all(helenus_query::plan::term::Expression::is_pure) {
            return invalid(format!(
                "{expression} can give another value for the same row, and cannot be in a view"
            ));
        }
        if !selection.aggregates.is_empty() && groups == 0 {
            return invalid(format!("{expression} is an aggregate, which needs GROUP BY in a projection"));
        }
        let column_type = selection.columns[0].column_type.clone();
        if column_type.any(&|part| *part == CqlType::Counter) {
            return invalid(format!("{expression} is a counter, and cannot be in a view"));
        }
        Ok(column_type)
    }

    fn planned(&self, select: &str) -> Result<SelectPlan> {
        let statement = parse(select).map_err(|error| RequestError::Invalid(format!("{select}: {error}")))?;
        let planned = plan(statement, self.catalog, None)?;
        if !planned.executed_functions.is_empty() {
            return invalid("User-defined functions and aggregates cannot be used in a view yet");
        }
        match planned.plan {
            Plan::Select(select) => Ok(select),
            _ => invalid(format!("{select} is not a SELECT")),
        }
    }

    /// Gives the columns of the primary key their places.
    fn place_keys(&self, columns: &mut [ViewColumn], unit_columns: usize) -> Result<()> {
        let (kind, view, base) = (self.kind, self.view(), self.names.base());
        let key = &self.create.primary_key;
        if key.partition.is_empty() {
            return invalid(format!("Must provide at least one partition key column for {kind} '{view}'"));
        }
        let places = (0..key.partition.len()).map(|position| ColumnKind::PartitionKey { position });
        let clustering =
            (0..key.clustering.len()).map(|position| ColumnKind::Clustering { position, descending: false });
        for (name, place) in key.partition.iter().chain(&key.clustering).zip(places.chain(clustering)) {
            let name = name.as_str();
            let Some(column) = columns.iter_mut().find(|column| column.name == name) else {
                return invalid(format!(
                    "Unknown column '{name}' referenced in PRIMARY KEY for {kind} '{view}'"
                ));
            };
            if column.kind != ColumnKind::Regular {
                return invalid(format!(
                    "Duplicate column '{name}' in PRIMARY KEY clause for {kind} '{view}'"
                ));
            }
            check_key_column(&Column {
                id: 0,
                name: name.to_owned(),
                column_type: column.column_type.clone(),
                kind: ColumnKind::Regular,
            })?;
            column.kind = match place {
                ColumnKind::Clustering { position, .. } => {
                    ColumnKind::Clustering { position, descending: self.is_descending(name, &column.source) }
                }
                other => other,
            };
        }
        let order = &self.create.options.clustering_order;
        if !order.is_empty() && !order.iter().map(|(column, _)| column).eq(&key.clustering) {
            return invalid(
                "Clustering key columns must exactly match columns in CLUSTERING ORDER BY directive",
            );
        }
        let in_key: Vec<&Source> = columns
            .iter()
            .filter(|column| column.kind != ColumnKind::Regular)
            .map(|column| &column.source)
            .collect();
        let missing = (0..unit_columns).filter(|index| !in_key.contains(&&Source::Base(*index)));
        let missing: Vec<&str> = missing.map(|index| base.columns[index].name.as_str()).collect();
        let what = if self.create.group_by.is_empty() { "primary key columns" } else { "GROUP BY columns" };
        if !missing.is_empty() {
            return invalid(format!(
                "Cannot create {kind} '{view}' without {what} {} from base table '{}'",
                missing.join(", "),
                base.name
            ));
        }
        let others = columns.iter().filter(|column| {
            column.kind != ColumnKind::Regular
                && !matches!(column.source, Source::Base(index) if base.columns[index].is_primary_key())
        });
        let others: Vec<&str> = others.map(|column| column.name.as_str()).collect();
        if self.is_materialized() && others.len() > 1 {
            return invalid(format!(
                "Cannot include more than one non-primary key column in materialized view primary key (got {})",
                others.join(", ")
            ));
        }
        if !self.create.group_by.is_empty() && (!others.is_empty() || in_key.len() != unit_columns) {
            return invalid(format!(
                "The primary key of a projection with GROUP BY has exactly the columns of GROUP BY: {}",
                base.columns[..unit_columns]
                    .iter()
                    .map(|column| column.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ));
        }
        Ok(())
    }

    /// As written, or else as in the base table.
    fn is_descending(&self, name: &str, source: &Source) -> bool {
        let order = &self.create.options.clustering_order;
        match order.iter().find(|(column, _)| column.as_str() == name) {
            Some((_, direction)) => *direction == Direction::Descending,
            None => match source {
                Source::Base(_) => self.names.column(source).is_some_and(Column::is_descending),
                _ => false,
            },
        }
    }

    /// The conditions on units, and those on other columns of the base table.
    fn conditions(
        &self,
        columns: &[ViewColumn],
        unit_columns: usize,
    ) -> Result<(Vec<Condition>, Vec<Condition>)> {
        let base = self.names.base();
        let is_key = |source: &Source| {
            columns.iter().any(|column| column.kind != ColumnKind::Regular && column.source == *source)
        };
        let (mut of_units, mut of_rows) = (Vec::new(), Vec::new());
        let mut restricted: Vec<Source> = Vec::new();
        let mut illegal: Vec<String> = Vec::new();
        for written in &self.create.relations {
            let (table, relation) = unqualified(written);
            let column = self.restricted_column(relation)?;
            let source = self.names.source(table, column)?;
            let is_not_null = matches!(relation, Relation::IsNotNull { .. });
            let of_base_key = matches!(source, Source::Base(index) if base.columns[index].is_primary_key());
            if !of_base_key && !is_not_null {
                illegal.push(column.as_str().to_owned());
            }
            let Some(found) = self.names.column(&source) else {
                unreachable!("a name is resolved to a column")
            };
            if found.is_static() {
                return invalid(format!("The static column {} cannot be restricted in a view", found.name));
            }
            restricted.push(source.clone());
            if is_not_null && (of_base_key || is_key(&source)) {
                continue;
            }
            if !is_not_null {
                self.check_relation(relation, &source)?;
            }
            let is_of_unit = match source {
                Source::Base(index) => index < unit_columns,
                _ => true,
            };
            if is_not_null && !is_of_unit && !self.create.group_by.is_empty() {
                return invalid(format!(
                    "{relation} is not possible in a projection with GROUP BY: aggregates leave out nulls, except count(*)"
                ));
            }
            let condition = Condition { column: source, relation: relation.clone() };
            if is_of_unit { of_units.push(condition) } else { of_rows.push(condition) }
        }
        if self.is_materialized() {
            let open = columns
                .iter()
                .filter(|column| column.kind != ColumnKind::Regular && !restricted.contains(&column.source));
            let open: Vec<&str> = open.map(|column| column.name.as_str()).collect();
            if !open.is_empty() {
                return invalid(format!(
                    "Primary key columns {} must be restricted with 'IS NOT NULL' or otherwise",
                    open.join(", ")
                ));
            }
            if !illegal.is_empty() {
                return invalid(format!(
                    "Non-primary key columns can only be restricted with 'IS NOT NULL' (got: {} restricted illegally)",
                    illegal.join(",")
                ));
            }
        }
        Ok((of_units, of_rows))
    }

    /// The column of a relation of a kind that views can have.
    fn restricted_column<'r>(&self, relation: &'r Relation) -> Result<&'r Identifier> {
        let kind = self.kind;
        match relation {
            Relation::CustomIndex { .. } => invalid(format!(
                "WHERE clause for {kind} '{}' cannot contain custom index expressions",
                self.view()
            )),
            Relation::Compare { subject, .. }
            | Relation::Between { subject, .. }
            | Relation::In { subject, .. } => match subject {
                Subject::Column(column) => Ok(column),
                Subject::Token(_) => invalid(format!("Cannot use token relation when defining a {kind}")),
                Subject::Columns(_) | Subject::Element { .. } => {
                    invalid(format!("{relation} is not possible in a {kind}: restrict single columns"))
                }
            },
            Relation::Qualified { relation, .. } => self.restricted_column(relation),
            Relation::Like { .. } => invalid(format!("{relation} is not possible in a {kind}")),
            Relation::Contains { column, .. } | Relation::IsNotNull { column } => Ok(column),
        }
    }

    /// Checks the types of a relation, and that its values are constants: they must be the same at all times.
    fn check_relation(&self, relation: &Relation, source: &Source) -> Result<()> {
        if let Relation::Compare { operator: Comparison::NotEqual, .. } = relation
            && self.is_materialized()
        {
            return invalid(format!("Unsupported \"!=\" relation: {relation}"));
        }
        let table = match source {
            Source::Joined(_) => self.names.joined().unwrap_or(self.names.base()),
            _ => self.names.base(),
        };
        self.planned(&format!("SELECT * FROM {} WHERE {relation} ALLOW FILTERING", table_name(table)))?;
        for value in values(relation) {
            visit(value, &mut |part| match part {
                Expression::Function { name, .. } => invalid(format!(
                    "{relation} calls {}: conditions of views take constants only",
                    name.name
                )),
                _ => Ok(true),
            })?;
        }
        Ok(())
    }
}

fn view_column(name: String, source: Source, column_type: CqlType, has_alias: bool) -> ViewColumn {
    ViewColumn { name, source, column_type, kind: ColumnKind::Regular, has_alias }
}

fn is_aggregate(part: &Expression) -> bool {
    match part {
        Expression::CountRows => true,
        Expression::Function { name: FunctionName { keyspace, name }, .. } => {
            keyspace.as_ref().is_none_or(|keyspace| keyspace == "system")
                && AGGREGATES.contains(&name.as_str())
        }
        _ => false,
    }
}

fn table_name(table: &Table) -> String {
    format!("{}.{}", Identifier::quoted(table.keyspace.as_str()), Identifier::quoted(table.name.as_str()))
}
