//! Constraints of columns (`CHECK …`), as in Cassandra 6: how they may be declared, and the test of a value that is written.
//!
//! Invariants:
//! * The constraints that a statement declares are valid for their column. Stored ones are read without the rules for declarations, which
//!   another version of the program may have had otherwise.
//! * A column has no constraints, or at least one.
//!
//! Error texts are Cassandra's (`cql3.constraints`).

use std::cmp::Ordering;
use std::collections::BTreeSet;

use cql_lite::syntax::ast::{self, Comparison, Identifier, Literal};
use cql_lite::types::{CqlType, compare, json, literal};
use regex::{Regex, RegexBuilder};

use crate::error::{RequestError, Result};

/// Most bytes that a compiled pattern takes, and as many for what a search with it keeps.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Most constraints of a column.
pub const CONSTRAINTS_MAX: usize = 64;
/// Most bytes of the constants in the constraints of a column.
pub const TERMS_BYTES_MAX: usize = 64 << 10;

/// The column that constraints are for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    pub name: &'a str,
    pub column_type: &'a CqlType,
    /// `partition` or `clustering`, if the column is part of the key.
    pub key: Option<&'static str>,
}

/// The constraints of a column, in the order in which they were declared.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraints(Vec<Constraint>);

#[derive(Debug, Clone, PartialEq)]
enum Constraint {
    NotNull,
    Json,
    /// `column < 5`
    Value(Relation),
    /// `LENGTH() < 5`: characters of a text as Java counts them, or bytes of a blob.
    Length(Relation),
    /// `OCTET_LENGTH() < 5`
    OctetLength(Relation),
    /// `REGEXP() = '…'`
    Pattern(Relation, Pattern),
    /// A stored constraint that this program cannot test.
    Unknown(ast::ColumnConstraint),
}

/// What a value, or what a function gives for it, is compared with.
#[derive(Debug, Clone, PartialEq)]
struct Relation {
    comparison: Comparison,
    /// As it was written.
    term: Literal,
    /// The term in the encoding of the type that is compared.
    operand: Vec<u8>,
}

/// A pattern for whole texts.
#[derive(Debug, Clone)]
struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Relation {
    fn accepts(&self, of: &CqlType, value: &[u8]) -> bool {
        is_satisfied(self.comparison, of, value, &self.operand)
    }

    fn symbol(&self) -> &'static str {
        self.comparison.symbol()
    }
}

fn is_satisfied(comparison: Comparison, of: &CqlType, left: &[u8], right: &[u8]) -> bool {
    let order = compare::compare(of, left, right);
    match comparison {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }
}

impl Constraints {
    /// The constraints that are declared for a column of a table.
    pub fn declare(table: &str, column: Target<'_>, declared: &[ast::ColumnConstraint]) -> Result<Self> {
        let name = column.name;
        check_size(name, declared)?;
        if let Some(other) = declared.iter().find(|constraint| {
            matches!(constraint, ast::ColumnConstraint::Value { column, .. } if column.as_str() != name)
        }) && let ast::ColumnConstraint::Value { column: named, .. } = other
        {
            return invalid(format!(
                "Constraint {other} was not specified on a column it operates on: {} but on: {}",
                Identifier::quoted(name),
                named.as_str()
            ));
        }
        let constraints = declared.iter().map(|declared| Constraint::declare(column, declared));
        let constraints = Self(constraints.collect::<Result<_>>()?);
        check_column(table, column)?;
        constraints.check_repetitions(name)?;
        for function in ["LENGTH", "OCTET_LENGTH", "REGEXP"] {
            constraints.check_relations(name, function, &CqlType::Int)?;
        }
        constraints.check_relations(name, SCALAR, column.column_type)?;
        for (constraint, declared) in constraints.0.iter().zip(declared) {
            constraint.check_target(column)?;
            if let ast::ColumnConstraint::Function { arguments, .. } = declared
                && !arguments.is_empty()
            {
                return invalid(format!(
                    "Constraint {} does not accept any arguments.",
                    constraint.function()
                ));
            }
        }
        Ok(constraints)
    }

    /// The stored constraints of a column. A value is refused by one that this program cannot test.
    pub fn restore(column: Target<'_>, stored: &[ast::ColumnConstraint]) -> Self {
        let constraint = |stored: &ast::ColumnConstraint| {
            Constraint::declare(column, stored).unwrap_or_else(|_| Constraint::Unknown(stored.clone()))
        };
        Self(stored.iter().map(constraint).collect())
    }

    /// The number of compiled patterns.
    pub fn patterns(&self) -> usize {
        self.0.iter().filter(|constraint| matches!(constraint, Constraint::Pattern(..))).count()
    }

    /// Whether a value must be given.
    pub fn has_not_null(&self) -> bool {
        self.0.contains(&Constraint::NotNull)
    }

    /// Refuses a value that does not satisfy all constraints. `None`: null.
    pub fn check(&self, column: Target<'_>, value: Option<&[u8]>) -> Result<()> {
        let name = column.name;
        let what = match value {
            None => "null",
            Some([]) if has_no_empty_value(column.column_type) => "empty",
            Some(value) => return self.0.iter().try_for_each(|constraint| constraint.check(column, value)),
        };
        invalid(format!(
            "Column value does not satisfy value constraint for column '{name}' as it is {what}."
        ))
    }

    /// The constraints as CQL after `CHECK`.
    pub fn to_cql(&self, column: &str) -> String {
        let column = Identifier::quoted(column).to_string();
        let texts: Vec<String> = self.0.iter().map(|constraint| constraint.text(&column)).collect();
        texts.join(" AND ")
    }

    fn check_repetitions(&self, column: &str) -> Result<()> {
        let mut names = BTreeSet::new();
        let repeated: Vec<String> = self
            .0
            .iter()
            .map(|constraint| (constraint, constraint.full_name(column)))
            .filter(|(constraint, name)| !names.insert(name.clone()) && !constraint.may_repeat())
            .map(|(_, name)| name)
            .collect();
        if repeated.is_empty() {
            return Ok(());
        }
        invalid(format!(
            "There are duplicate constraint definitions on column '{column}': [{}]",
            repeated.join(", ")
        ))
    }

    /// Refuses relations of one function, or of the value, that make no sense together. `of`: the type that they compare.
    fn check_relations(&self, column: &str, function: &str, of: &CqlType) -> Result<()> {
        let relations: Vec<(&Constraint, &Relation)> = self
            .0
            .iter()
            .filter(|constraint| constraint.function() == function)
            .filter_map(|constraint| Some((constraint, constraint.relation()?)))
            .collect();
        let unequal = |(_, relation): &&(&Constraint, &Relation)| relation.comparison == Comparison::NotEqual;
        if relations.iter().filter(|relation| !unequal(relation)).count() > 2 {
            return invalid(format!(
                "There can not be more than 2 constraints (not including non-equal relations) on a column '{column}' \
                 but you have specified {}",
                relations.len()
            ));
        }
        let mut terms = BTreeSet::new();
        let repeated =
            relations.iter().filter(unequal).find(|(_, relation)| !terms.insert(relation.term.to_string()));
        if let Some((constraint, _)) = repeated {
            return invalid(format!(
                "There are duplicate constraint definitions on column '{column}': {}",
                constraint.text(column)
            ));
        }
        if function == "REGEXP"
            && let Some((_, relation)) = relations.iter().find(|(_, relation)| {
                !matches!(relation.comparison, Comparison::Equal | Comparison::NotEqual)
            })
        {
            return invalid(format!(
                "{function} constraint of relation '{}' is not supported. Only these are: [=, !=]",
                relation.symbol()
            ));
        }
        match relations[..] {
            [(_, first), (_, second)] => check_pair(column, function, of, first, second),
            _ => Ok(()),
        }
    }
}

/// The number of patterns among declared constraints.
pub fn declared_patterns(declared: &[ast::ColumnConstraint]) -> usize {
    let is_pattern = |constraint: &&ast::ColumnConstraint| match constraint {
        ast::ColumnConstraint::Function { name, .. } => name.as_str().eq_ignore_ascii_case("REGEXP"),
        _ => false,
    };
    declared.iter().filter(is_pattern).count()
}

/// Refuses more constraints than a column may have, before any is made.
fn check_size(column: &str, declared: &[ast::ColumnConstraint]) -> Result<()> {
    let count = declared.len();
    if count > CONSTRAINTS_MAX {
        return invalid(format!(
            "Column '{column}' has {count} constraints; at most {CONSTRAINTS_MAX} are possible"
        ));
    }
    let term_bytes = |constraint: &ast::ColumnConstraint| match constraint {
        ast::ColumnConstraint::Value { term, .. }
        | ast::ColumnConstraint::Function { relation: Some((_, term)), .. } => {
            term.raw_text().map_or(0, |text| text.len())
        }
        _ => 0,
    };
    let bytes: usize = declared.iter().map(term_bytes).sum();
    if bytes > TERMS_BYTES_MAX {
        return invalid(format!(
            "The constants in the constraints of column '{column}' have {bytes} bytes; at most {TERMS_BYTES_MAX} are possible"
        ));
    }
    Ok(())
}

/// Refuses constraints of a column whose values cannot have any.
fn check_column(table: &str, column: Target<'_>) -> Result<()> {
    let column_type = column.column_type;
    let is_constrainable = match column_type {
        CqlType::Tuple(_)
        | CqlType::UserType { .. }
        | CqlType::Counter
        | CqlType::Empty
        | CqlType::Custom(_) => false,
        other => !other.is_multi_cell(),
    };
    if is_constrainable {
        return Ok(());
    }
    let hint = if column_type.is_collection() {
        " When using collections, constraints can be used only of frozen collections."
    } else {
        ""
    };
    invalid(format!(
        "Constraint cannot be defined on the column {} of type {column_type} for the table {table}.{hint}",
        column.name
    ))
}

/// The name of comparisons of the value itself in messages.
const SCALAR: &str = "scalar";

fn check_pair(column: &str, function: &str, of: &CqlType, first: &Relation, second: &Relation) -> Result<()> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let pair = || {
        let text = |relation: &Relation| format!("{column} {} {}", relation.symbol(), relation.term);
        format!("{}, {}", text(first), text(second))
    };
    match (first.comparison, second.comparison) {
        (Equal, _)
        | (_, Equal)
        | (Greater, GreaterOrEqual)
        | (GreaterOrEqual, Greater)
        | (Less, LessOrEqual)
        | (LessOrEqual, Less) => {
            invalid(format!("Constraints combination of {function} is not supported: {}", pair()))
        }
        (NotEqual, _) | (_, NotEqual) => Ok(()),
        _ if first.accepts(of, &second.operand) && second.accepts(of, &first.operand) => Ok(()),
        _ => invalid(format!("Constraints of {function} are not satisfiable: {}", pair())),
    }
}

impl Constraint {
    fn declare(column: Target<'_>, declared: &ast::ColumnConstraint) -> Result<Self> {
        match declared {
            ast::ColumnConstraint::NotNull => Ok(Self::NotNull),
            ast::ColumnConstraint::Value { comparison, term, .. } => {
                value_relation(column, *comparison, term)
            }
            ast::ColumnConstraint::Function { name, relation, .. } => {
                let constraint = match (name.as_str().to_uppercase().as_str(), relation) {
                    ("NOT_NULL", None) => Self::NotNull,
                    ("JSON", None) => Self::Json,
                    ("LENGTH", Some((comparison, term))) => {
                        Self::Length(length_relation("LENGTH", *comparison, term)?)
                    }
                    ("OCTET_LENGTH", Some((comparison, term))) => {
                        Self::OctetLength(length_relation("OCTET_LENGTH", *comparison, term)?)
                    }
                    ("REGEXP", Some((comparison, term))) => pattern_relation(*comparison, term)?,
                    _ => {
                        return invalid(format!("Unrecognized constraint function: {}", name.as_str()));
                    }
                };
                Ok(constraint)
            }
        }
    }

    /// The name of the function, or of comparisons of the value itself.
    fn function(&self) -> &'static str {
        match self {
            Self::NotNull => "NOT_NULL",
            Self::Json => "JSON",
            Self::Value(_) => SCALAR,
            Self::Length(_) => "LENGTH",
            Self::OctetLength(_) => "OCTET_LENGTH",
            Self::Pattern(..) => "REGEXP",
            Self::Unknown(_) => "UNKNOWN",
        }
    }

    fn relation(&self) -> Option<&Relation> {
        match self {
            Self::NotNull | Self::Json | Self::Unknown(_) => None,
            Self::Value(relation)
            | Self::Length(relation)
            | Self::OctetLength(relation)
            | Self::Pattern(relation, _) => Some(relation),
        }
    }

    /// What no other constraint of the column may have, too.
    fn full_name(&self, column: &str) -> String {
        let subject = if matches!(self, Self::Value(_)) { column } else { self.function() };
        match self.relation() {
            Some(relation) => format!("{subject} {}", relation.symbol()),
            None => subject.to_owned(),
        }
    }

    fn may_repeat(&self) -> bool {
        self.relation().is_some_and(|relation| relation.comparison == Comparison::NotEqual)
    }

    fn text(&self, column: &str) -> String {
        let relation_text =
            |subject: &str, relation: &Relation| format!("{subject} {} {}", relation.symbol(), relation.term);
        match self {
            Self::NotNull | Self::Unknown(ast::ColumnConstraint::NotNull) => "NOT NULL".to_owned(),
            Self::Value(relation) => relation_text(column, relation),
            // The column may have another name by now.
            Self::Unknown(ast::ColumnConstraint::Value { comparison, term, .. }) => {
                format!("{column} {} {term}", comparison.symbol())
            }
            Self::Unknown(ast::ColumnConstraint::Function { name, arguments, relation }) => {
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                let call = format!("{}({})", name.as_str().to_uppercase(), arguments.join(", "));
                match relation {
                    Some((comparison, term)) => format!("{call} {} {term}", comparison.symbol()),
                    None => call,
                }
            }
            other => {
                let call = format!("{}()", other.function());
                other.relation().map_or(call.clone(), |relation| relation_text(&call, relation))
            }
        }
    }

    /// Checks that the column can have the constraint.
    fn check_target(&self, column: Target<'_>) -> Result<()> {
        let name = column.name;
        let function = self.function();
        let supported: &[CqlType] = match self {
            Self::NotNull => match column.key {
                None => return Ok(()),
                Some(key) => {
                    return invalid(format!(
                        "{function} constraint can not be specified on a {key} key column '{name}'"
                    ));
                }
            },
            Self::Value(_) | Self::Unknown(_) => return Ok(()),
            Self::Length(_) | Self::OctetLength(_) => &[CqlType::Blob, CqlType::Text, CqlType::Ascii],
            Self::Json | Self::Pattern(..) => &[CqlType::Text, CqlType::Ascii],
        };
        if supported.contains(column.column_type) {
            return Ok(());
        }
        let classes: Vec<String> = supported.iter().map(CqlType::class_name).collect();
        invalid(format!(
            "Constraint '{function}' can be used only for columns of type [{}] but it was class {}",
            classes.join(", "),
            column.column_type.class_name()
        ))
    }

    fn check(&self, column: Target<'_>, value: &[u8]) -> Result<()> {
        let name = column.name;
        let violated = || format!("Column value does not satisfy value constraint for column '{name}'.");
        match self {
            Self::NotNull => Ok(()),
            Self::Json if std::str::from_utf8(value).is_ok_and(|text| json::parse(text).is_ok()) => Ok(()),
            Self::Json => invalid(format!(
                "Value for column '{}' violated JSON constraint as it is not a valid JSON.",
                Identifier::quoted(name)
            )),
            Self::Value(relation) if relation.accepts(column.column_type, value) => Ok(()),
            Self::Value(_) => invalid(format!("{} It should be {}", violated(), self.text(name))),
            Self::Length(relation) => {
                let length = match column.column_type {
                    CqlType::Blob => value.len(),
                    _ => String::from_utf8_lossy(value).encode_utf16().count(),
                };
                check_length(relation, length, || {
                    format!("{} It has a length of {length} and it should be", violated())
                })
            }
            Self::OctetLength(relation) => {
                let length = value.len();
                check_length(relation, length, || {
                    // The repetition is Cassandra's.
                    format!("{} It has a length of {length} and it should be should be", violated())
                })
            }
            Self::Pattern(relation, pattern) => {
                let matches = std::str::from_utf8(value).is_ok_and(|text| pattern.0.is_match(text));
                match (matches, relation.comparison) {
                    (false, Comparison::Equal) => {
                        invalid(format!("Value does not match regular expression {}", relation.term))
                    }
                    (true, Comparison::NotEqual) => {
                        invalid(format!("Value does match regular expression {}", relation.term))
                    }
                    _ => Ok(()),
                }
            }
            Self::Unknown(_) => invalid(format!(
                "Column '{name}' takes no value, because this version of Helenus cannot test its constraint {}. Another one can \
                 be declared with ALTER TABLE.",
                self.text(name)
            )),
        }
    }
}

fn check_length(relation: &Relation, length: usize, message: impl Fn() -> String) -> Result<()> {
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    if relation.accepts(&CqlType::Int, &length.to_be_bytes()) {
        return Ok(());
    }
    invalid(format!("{} {} {}", message(), relation.symbol(), relation.term))
}

fn value_relation(column: Target<'_>, comparison: Comparison, term: &Literal) -> Result<Constraint> {
    let (name, column_type) = (column.name, column.column_type);
    let is_comparable = column_type.is_numeric() && *column_type != CqlType::Counter
        || matches!(column_type, CqlType::Date | CqlType::Time | CqlType::Timestamp);
    // What no constraint can be declared on is reported as that.
    if !is_comparable && !column_type.is_multi_cell() {
        return invalid(format!("Column '{name}' is not a number type."));
    }
    let text = term.raw_text().unwrap_or_default();
    let operand = literal::parse(column_type, &text).ok().filter(|operand| !operand.is_empty());
    match operand {
        Some(operand) => Ok(Constraint::Value(Relation { comparison, term: term.clone(), operand })),
        None if !is_comparable => {
            Ok(Constraint::Value(Relation { comparison, term: term.clone(), operand: Vec::new() }))
        }
        None => invalid(format!("Cannot parse constraint value from '{text}' for column '{name}'")),
    }
}

fn length_relation(function: &str, comparison: Comparison, term: &Literal) -> Result<Relation> {
    let text = term.raw_text().unwrap_or_default();
    match literal::parse(&CqlType::Int, &text) {
        Ok(operand) if !operand.is_empty() => Ok(Relation { comparison, term: term.clone(), operand }),
        _ => invalid(format!("{text} is not a number of {function} constraint")),
    }
}

fn pattern_relation(comparison: Comparison, term: &Literal) -> Result<Constraint> {
    let text = term.raw_text().unwrap_or_default();
    let whole = format!("\\A(?:{text})\\z");
    // Alone first: parentheses that the text closes and opens again are no pattern.
    let compile = |text: &str| {
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build()
    };
    let compiled = compile(&text).and_then(|_| compile(&whole));
    match compiled {
        Ok(pattern) => {
            let relation = Relation { comparison, term: term.clone(), operand: text.into_bytes() };
            Ok(Constraint::Pattern(relation, Pattern(pattern)))
        }
        Err(regex::Error::CompiledTooBig(_)) => invalid(format!(
            "Regular expression '{text}' is too large: it takes more than {PATTERN_BYTES_MAX} bytes when it is compiled"
        )),
        Err(_) => invalid(format!("String '{text}' is not a valid regular expression")),
    }
}

/// Whether the empty value of a type is as good as none.
fn has_no_empty_value(of: &CqlType) -> bool {
    !matches!(of, CqlType::Text | CqlType::Ascii | CqlType::Blob)
}

fn invalid<T>(message: String) -> Result<T> {
    Err(RequestError::Invalid(message))
}
