//! The name that Cassandra gives a column of a result whose selector has no alias.

use crate::syntax::ast::{FunctionName, Literal, SelectedItem, Selector};

impl SelectedItem {
    /// The name of the result's column: the alias, or else [`Selector::result_name`].
    pub fn result_name(&self, keyspace_of: impl Fn(&FunctionName) -> String) -> String {
        match &self.alias {
            Some(alias) => alias.as_str().to_owned(),
            None => self.selector.result_name(&keyspace_of),
        }
    }
}

impl Selector {
    /// The name of the result's column, without quotes. `keyspace_of` says where an unqualified function was found:
    /// `system` for native ones, of which the name then tells (`system.token(a)`).
    pub fn result_name(&self, keyspace_of: &dyn Fn(&FunctionName) -> String) -> String {
        let name = |selector: &Selector| selector.result_name(keyspace_of);
        let names = |selectors: &[Selector]| selectors.iter().map(name).collect::<Vec<_>>().join(", ");
        match self {
            Selector::Column(column) => column.as_str().to_owned(),
            Selector::Literal(literal) => literal.to_string(),
            Selector::Marker(marker) => marker.to_string(),
            Selector::CountRows => "count".to_owned(),
            Selector::WriteMetadata { kind, target } => format!("{}({})", kind.name(), name(target)),
            Selector::Cast { selector, target } => format!("cast({} as {target})", name(selector)),
            Selector::Function { .. } if self.counts_rows() => "count".to_owned(),
            Selector::Function { name: function, arguments } => {
                let keyspace = match &function.keyspace {
                    Some(keyspace) => keyspace.as_str().to_owned(),
                    None => keyspace_of(function),
                };
                format!("{keyspace}.{}({})", function.name.as_str(), names(arguments))
            }
            Selector::Field { selector, field } => format!("{}.{}", name(selector), field.as_str()),
            Selector::Element { selector, key } => format!("{}[{key}]", name(selector)),
            Selector::Slice { selector, from, to } => {
                let bound = |term: &Option<_>| term.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{}[{}..{}]", name(selector), bound(from), bound(to))
            }
            Selector::TypeHint { type_name, selector } => format!("({type_name}){}", name(selector)),
            Selector::Arithmetic { left, operator, right } => {
                format!("{} {} {}", name(left), operator.symbol(), name(right))
            }
            Selector::Negation(selector) => format!("-{}", name(selector)),
            Selector::List(elements) => format!("[{}]", names(elements)),
            Selector::Set(elements) => format!("{{{}}}", names(elements)),
            Selector::MapOrUserType(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("{}: {}", name(key), name(value))).collect();
                format!("{{{}}}", entries.join(", "))
            }
            Selector::Tuple(elements) => match &**elements {
                [selector] => name(selector),
                elements => format!("({})", names(elements)),
            },
        }
    }

    /// Whether it is `count(*)` or counts a constant, which is the same.
    pub fn counts_rows(&self) -> bool {
        match self {
            Selector::CountRows => true,
            Selector::Function { name: FunctionName { keyspace: None, name }, arguments } => {
                name.as_str() == "count"
                    && matches!(&**arguments, [Selector::Literal(literal)] if *literal != Literal::Null)
            }
            _ => false,
        }
    }
}
