//! The name that Cassandra gives a result column without an alias.

use crate::syntax::ast::{Expression, FunctionName, Literal, SelectedItem};

impl SelectedItem {
    /// The name of the result column: the alias, or else [`Expression::result_name`].
    pub fn result_name(&self, keyspace_of: impl Fn(&FunctionName) -> String) -> String {
        match &self.alias {
            Some(alias) => alias.as_str().to_owned(),
            None => self.expression.result_name(&keyspace_of),
        }
    }
}

impl Expression {
    /// The name of the result column, without quotes. `keyspace_of` gives the keyspace of a function whose name has
    /// none; that of native functions is `system`. The keyspace is part of the name: `system.token(a)`.
    pub fn result_name(&self, keyspace_of: &dyn Fn(&FunctionName) -> String) -> String {
        let name = |expression: &Expression| expression.result_name(keyspace_of);
        let names = |expressions: &[Expression]| expressions.iter().map(name).collect::<Vec<_>>().join(", ");
        match self {
            Expression::Column(column) => column.as_str().to_owned(),
            Expression::Literal(literal) => literal.to_string(),
            Expression::Marker(marker) => marker.to_string(),
            Expression::CountRows => "count".to_owned(),
            Expression::WriteMetadata { kind, target } => format!("{}({})", kind.name(), name(target)),
            Expression::Cast { operand, target } => format!("cast({} as {target})", name(operand)),
            Expression::Function { .. } if self.counts_rows() => "count".to_owned(),
            Expression::Function { name: function, arguments } => {
                let keyspace = match &function.keyspace {
                    Some(keyspace) => keyspace.as_str().to_owned(),
                    None => keyspace_of(function),
                };
                format!("{keyspace}.{}({})", function.name.as_str(), names(arguments))
            }
            Expression::Field { operand, field } => format!("{}.{}", name(operand), field.as_str()),
            Expression::Element { operand, key } => format!("{}[{key}]", name(operand)),
            Expression::Slice { operand, from, to } => {
                let bound = |bound: &Option<_>| bound.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{}[{}..{}]", name(operand), bound(from), bound(to))
            }
            Expression::TypeHint { type_name, operand } => format!("({type_name}){}", name(operand)),
            Expression::Arithmetic { left, operator, right } => {
                format!("{} {} {}", name(left), operator.symbol(), name(right))
            }
            Expression::Negation(operand) => format!("-{}", name(operand)),
            Expression::List(elements) => format!("[{}]", names(elements)),
            Expression::Set(elements) => format!("{{{}}}", names(elements)),
            Expression::MapOrUserType(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("{}: {}", name(key), name(value))).collect();
                format!("{{{}}}", entries.join(", "))
            }
            Expression::Reference(reference) => reference.result_name(),
            Expression::Tuple(elements) => format!("({})", names(elements)),
        }
    }

    /// Whether it is `count(*)` or its equivalent, the count of a constant.
    fn counts_rows(&self) -> bool {
        match self {
            Expression::CountRows => true,
            Expression::Function { name: FunctionName { keyspace: None, name }, arguments } => {
                name.as_str() == "count"
                    && matches!(&**arguments, [Expression::Literal(literal)] if *literal != Literal::Null)
            }
            _ => false,
        }
    }
}
