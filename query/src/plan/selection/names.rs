//! The names of the columns of a result, as Cassandra writes selectors.

use cql_lite::syntax::ast;

use super::function_name;

/// The name of a result column, as Cassandra prints selectors.
pub fn display_name(selector: &ast::Selector) -> String {
    match selector {
        ast::Selector::Column(name) => name.as_str().to_owned(),
        ast::Selector::CountRows => "count".to_owned(),
        ast::Selector::WriteMetadata { kind, target } => {
            format!("{}({})", function_name(*kind), display_name(target))
        }
        ast::Selector::Cast { selector, target } => {
            format!("cast({} as {})", display_name(selector), target.name())
        }
        ast::Selector::Function { name, arguments } => {
            let lower = name.name.as_str();
            if lower == "count" && matches!(arguments[..], [ast::Selector::Literal(_)]) {
                return "count".to_owned();
            }
            let arguments: Vec<String> = arguments.iter().map(display_name).collect();
            let keyspace = name.keyspace.as_ref().map_or("system", ast::Identifier::as_str);
            format!("{keyspace}.{lower}({})", arguments.join(", "))
        }
        ast::Selector::Field { selector, field } => format!("{}.{}", display_name(selector), field.as_str()),
        ast::Selector::Element { selector, key } => format!("{}[{key}]", display_name(selector)),
        ast::Selector::Slice { selector, from, to } => {
            let bound = |bound: &Option<ast::Term>| bound.as_ref().map_or(String::new(), ToString::to_string);
            format!("{}[{}..{}]", display_name(selector), bound(from), bound(to))
        }
        ast::Selector::Arithmetic { left, operator, right } => {
            format!("{} {} {}", display_name(left), operator.symbol(), display_name(right))
        }
        ast::Selector::Negation(operand) => format!("-{}", display_name(operand)),
        ast::Selector::TypeHint { type_name, selector } => format!("({type_name}){}", display_name(selector)),
        ast::Selector::List(items) => format!("[{}]", join_names(items)),
        ast::Selector::Set(items) => format!("{{{}}}", join_names(items)),
        ast::Selector::Tuple(items) => format!("({})", join_names(items)),
        ast::Selector::MapOrUserType(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", display_name(key), display_name(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

fn join_names(items: &[ast::Selector]) -> String {
    items.iter().map(display_name).collect::<Vec<_>>().join(", ")
}
