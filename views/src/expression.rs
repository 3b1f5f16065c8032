//! Walks over the expressions and relations of a view's statement.

use cql_lite::syntax::ast::{Expression, Identifier, InValues, Relation, Subject};
use helenus_query::error::Result;

/// An expression in which each part has been replaced for which `replace` has another one.
pub fn rewritten(
    expression: &Expression,
    replace: &mut dyn FnMut(&Expression) -> Result<Option<Expression>>,
) -> Result<Expression> {
    if let Some(other) = replace(expression)? {
        return Ok(other);
    }
    let mut of = |part: &Expression| rewritten(part, replace);
    Ok(match expression {
        Expression::Literal(_)
        | Expression::Marker(_)
        | Expression::Column(_)
        | Expression::CountRows
        | Expression::Reference(_) => expression.clone(),
        Expression::WriteMetadata { kind, target } => {
            Expression::WriteMetadata { kind: *kind, target: Box::new(of(target)?) }
        }
        Expression::Function { name, arguments } => Expression::Function {
            name: name.clone(),
            arguments: arguments.iter().map(of).collect::<Result<_>>()?,
        },
        Expression::Cast { operand, target } => {
            Expression::Cast { operand: Box::new(of(operand)?), target: *target }
        }
        Expression::TypeHint { type_name, operand } => {
            Expression::TypeHint { type_name: type_name.clone(), operand: Box::new(of(operand)?) }
        }
        Expression::Arithmetic { left, operator, right } => Expression::Arithmetic {
            left: Box::new(of(left)?),
            operator: *operator,
            right: Box::new(of(right)?),
        },
        Expression::Negation(operand) => Expression::Negation(Box::new(of(operand)?)),
        Expression::Field { operand, field } => {
            Expression::Field { operand: Box::new(of(operand)?), field: field.clone() }
        }
        Expression::Element { operand, key } => {
            Expression::Element { operand: Box::new(of(operand)?), key: Box::new(of(key)?) }
        }
        Expression::Slice { operand, from, to } => {
            let operand = Box::new(of(operand)?);
            let mut bound = |bound: &Option<Box<Expression>>| {
                bound.as_deref().map(&mut of).transpose().map(|b| b.map(Box::new))
            };
            Expression::Slice { operand, from: bound(from)?, to: bound(to)? }
        }
        Expression::List(items) => Expression::List(items.iter().map(of).collect::<Result<_>>()?),
        Expression::Set(items) => Expression::Set(items.iter().map(of).collect::<Result<_>>()?),
        Expression::Tuple(items) => Expression::Tuple(items.iter().map(of).collect::<Result<_>>()?),
        Expression::MapOrUserType(entries) => {
            let mut entry = |(key, value): &(Expression, Expression)| {
                // A name is one of a field.
                let key = if matches!(key, Expression::Column(_)) { key.clone() } else { of(key)? };
                Ok((key, of(value)?))
            };
            Expression::MapOrUserType(entries.iter().map(&mut entry).collect::<Result<_>>()?)
        }
    })
}

/// Calls `visit` for an expression and its parts, until it returns false for one: then not for the parts of that.
pub fn visit(expression: &Expression, visit: &mut dyn FnMut(&Expression) -> Result<bool>) -> Result<()> {
    rewritten(expression, &mut |part| Ok(if visit(part)? { None } else { Some(part.clone()) })).map(|_| ())
}

/// A relation whose columns have the names that `name` gives them.
pub fn renamed(
    relation: &Relation,
    name: &mut dyn FnMut(&Identifier) -> Result<Identifier>,
) -> Result<Relation> {
    let mut relation = relation.clone();
    match &mut relation {
        Relation::Compare { subject, .. }
        | Relation::Between { subject, .. }
        | Relation::In { subject, .. } => match subject {
            Subject::Column(column) | Subject::Element { column, .. } => *column = name(column)?,
            Subject::Columns(columns) | Subject::Token(columns) => {
                for column in columns {
                    *column = name(column)?;
                }
            }
        },
        Relation::Contains { column, .. }
        | Relation::Like { column, .. }
        | Relation::IsNotNull { column } => {
            *column = name(column)?;
        }
        Relation::Qualified { relation, .. } => **relation = renamed(relation, name)?,
        Relation::CustomIndex { .. } => {}
    }
    Ok(relation)
}

/// The table's name or alias before the column of a relation, and the relation without it.
pub fn unqualified(relation: &Relation) -> (Option<&Identifier>, &Relation) {
    match relation {
        Relation::Qualified { table, relation } => (Some(table), relation),
        _ => (None, relation),
    }
}

/// The relation with the name or alias of a table before its column.
pub fn qualified(table: Option<&Identifier>, relation: Relation) -> Relation {
    match table {
        Some(table) => Relation::Qualified { table: table.clone(), relation: Box::new(relation) },
        None => relation,
    }
}

/// The values that a relation compares with.
pub fn values(relation: &Relation) -> Vec<&Expression> {
    match relation {
        Relation::Compare { value, .. }
        | Relation::Contains { value, .. }
        | Relation::CustomIndex { value, .. } => {
            vec![value]
        }
        Relation::Like { pattern, .. } => vec![pattern],
        Relation::Between { from, to, .. } => vec![from, to],
        Relation::In { values: InValues::Values(values), .. } => values.iter().collect(),
        Relation::Qualified { relation, .. } => values(relation),
        Relation::In { values: InValues::Marker(_), .. } | Relation::IsNotNull { .. } => Vec::new(),
    }
}
