//! The native functions by name, and the choice among their overloads.
//!
//! An argument is an exact match of a parameter if it has the same type, a weak match if it can be converted. A
//! candidate with exact matches only is chosen at once. Otherwise a single candidate with weak matches is chosen;
//! none or several are errors. Literals match weakly every type for which they can be written, and exactly their
//! natural type. Bind markers and nulls match everything weakly.

use cql_lite::types::CqlType;
use cql_lite::types::literal::LiteralKind;

use super::arithmetic::{NUMERIC_TYPES, Operator, numeric_result};
use super::cast::Cast;
use super::collection::{COLLECTION_FUNCTIONS, CollectionFunction};
use super::failure::Failure;
use super::function::{Implementation, ResolvedFunction};
use super::masking::{self, MASKING_FUNCTIONS, MaskingFunction};
use super::math::MATH_FUNCTIONS;
use super::names::native_name;
use super::temporal::TemporalFunction;
use super::vector::SIMILARITIES;
use crate::error::{RequestError, Result};
use helenus_vectors::Similarity;

/// The name of the function that executes the unary minus.
pub const NEGATION: &str = "_negate";

/// The name of the function that carries out a binary operator; empty for a symbol that is no operator.
pub fn operator_name(symbol: &str) -> &'static str {
    Operator::ALL
        .iter()
        .find(|operator| operator.symbol() == symbol)
        .map_or("", |operator| operator.function_name())
}

/// The name with its keyspace: `system.now`, `ks.f`. A name without a keyspace that is not a native function is
/// returned unchanged.
pub fn qualified_name(keyspace: Option<&str>, name: &str) -> String {
    match keyspace {
        Some(keyspace) => format!("{keyspace}.{name}"),
        None if exists(name) => format!("system.{}", name.to_ascii_lowercase()),
        None => name.to_owned(),
    }
}

/// Whether a function of that name exists, for any arguments.
pub fn exists(name: &str) -> bool {
    super::is_aggregate(name)
        || native_name(name).is_some_and(|plain| !matches!(candidates(&plain), Candidates::None))
}

/// The type that a function gives to a list literal among its arguments. `None`: the literal has no type of its own.
pub fn list_literal_type(name: &str, items: usize) -> Option<CqlType> {
    let takes_vectors = find(&SIMILARITIES, &native_name(name)?).is_some();
    (takes_vectors && items > 0).then(|| CqlType::vector(CqlType::Float, items))
}

/// The types of the parameters of a native function that hides values of a type. `None`: no such function has that name.
pub fn masking_parameter_types(name: &str, of: &CqlType) -> Option<Vec<CqlType>> {
    Some(find(&MASKING_FUNCTIONS, &native_name(name)?)?.parameter_types(of))
}

/// Whether this is the name of a native function that hides values.
pub fn is_masking(name: &str) -> bool {
    native_name(name).is_some_and(|plain| find(&MASKING_FUNCTIONS, &plain).is_some())
}

/// The functions with one name.
enum Candidates {
    None,
    /// Functions with fixed types.
    Overloads(Vec<ResolvedFunction>),
    /// A function that adapts to the types of its arguments.
    Generic(Generic),
}

#[derive(Clone, Copy)]
enum Generic {
    ToJson,
    FromJson,
    Collection(CollectionFunction),
    Similarity(Similarity),
    OctetLength,
    Masking(MaskingFunction),
}

fn candidates(name: &str) -> Candidates {
    let generic = match name {
        "tojson" | "to_json" => Some(Generic::ToJson),
        "fromjson" | "from_json" => Some(Generic::FromJson),
        "octet_length" => Some(Generic::OctetLength),
        _ => find(&COLLECTION_FUNCTIONS, name)
            .map(Generic::Collection)
            .or_else(|| find(&SIMILARITIES, name).map(Generic::Similarity))
            .or_else(|| find(&MASKING_FUNCTIONS, name).map(Generic::Masking)),
    };
    if let Some(generic) = generic {
        return Candidates::Generic(generic);
    }
    let overloads = overloads(name);
    if overloads.is_empty() { Candidates::None } else { Candidates::Overloads(overloads) }
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(candidate, _)| *candidate == name).map(|(_, found)| *found)
}

fn overloads(name: &str) -> Vec<ResolvedFunction> {
    let function = |arguments: &[CqlType], returns: CqlType, implementation| {
        ResolvedFunction::new(name, arguments.to_vec(), returns, implementation)
    };
    let of_each_number = |implementation| {
        let of_type = |ty: &CqlType| {
            function(std::slice::from_ref(ty), ty.clone(), Implementation::clone(&implementation))
        };
        NUMERIC_TYPES.iter().map(of_type).collect()
    };
    if let Some(operator) = Operator::ALL.into_iter().find(|operator| operator.function_name() == name) {
        return operations(operator);
    }
    if name == NEGATION {
        return of_each_number(Implementation::Negation);
    }
    if let Some(math) = find(&MATH_FUNCTIONS, name) {
        return of_each_number(Implementation::Math(math));
    }
    if let Some(target) = name.strip_prefix("cast_as_").or_else(|| name.strip_prefix("castas")) {
        let Some(target) = CqlType::native(target) else { return Vec::new() };
        return CqlType::natives()
            .filter(|from| *from != target)
            .filter_map(|from| resolve_cast(&from, &target).ok())
            .collect();
    }
    if name == "length" {
        return vec![function(&[CqlType::Text], CqlType::Int, Implementation::Length)];
    }
    if name == "substring" {
        let arguments = [CqlType::Text, CqlType::Int, CqlType::Int];
        return vec![function(&arguments, CqlType::Text, Implementation::Substring)];
    }
    if name == "uuid" {
        return vec![function(&[], CqlType::Uuid, Implementation::Uuid)];
    }
    if let Some(converted) = blob_conversion(name) {
        return vec![converted];
    }
    temporal_overloads(name)
}

/// `typeAsBlob`, `type_as_blob`, `blobAsType`, `blob_as_type`
fn blob_conversion(name: &str) -> Option<ResolvedFunction> {
    let convertible =
        |text: &str| CqlType::native(text).filter(|ty| !matches!(ty, CqlType::Blob | CqlType::Empty));
    let to_blob = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob")).and_then(convertible);
    if let Some(ty) = to_blob {
        return Some(ResolvedFunction::new(name, vec![ty], CqlType::Blob, Implementation::ToBlob));
    }
    let ty = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas")).and_then(convertible)?;
    Some(ResolvedFunction::new(name, vec![CqlType::Blob], ty, Implementation::FromBlob))
}

fn temporal_overloads(name: &str) -> Vec<ResolvedFunction> {
    use CqlType::{Bigint, Date, Duration, Time, Timestamp, Timeuuid};
    let signatures: Vec<(TemporalFunction, Vec<CqlType>, CqlType)> = match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => {
            vec![(TemporalFunction::CurrentTimeuuid, vec![], Timeuuid)]
        }
        "current_timestamp" | "currenttimestamp" => {
            vec![(TemporalFunction::CurrentTimestamp, vec![], Timestamp)]
        }
        "current_date" | "currentdate" => vec![(TemporalFunction::CurrentDate, vec![], Date)],
        "current_time" | "currenttime" => vec![(TemporalFunction::CurrentTime, vec![], Time)],
        "mintimeuuid" | "min_timeuuid" => vec![(TemporalFunction::MinTimeuuid, vec![Timestamp], Timeuuid)],
        "maxtimeuuid" | "max_timeuuid" => vec![(TemporalFunction::MaxTimeuuid, vec![Timestamp], Timeuuid)],
        "todate" | "to_date" => [Timeuuid, Timestamp]
            .into_iter()
            .map(|from| (TemporalFunction::ToDate, vec![from], Date))
            .collect(),
        "totimestamp" | "to_timestamp" => [Timeuuid, Date]
            .into_iter()
            .map(|from| (TemporalFunction::ToTimestamp, vec![from], Timestamp))
            .collect(),
        "dateof" => vec![(TemporalFunction::ToTimestamp, vec![Timeuuid], Timestamp)],
        "tounixtimestamp" | "to_unix_timestamp" => [Timeuuid, Timestamp, Date]
            .into_iter()
            .map(|from| (TemporalFunction::ToUnixTimestamp, vec![from], Bigint))
            .collect(),
        "unixtimestampof" => vec![(TemporalFunction::ToUnixTimestamp, vec![Timeuuid], Bigint)],
        "floor" => vec![
            (TemporalFunction::Floor, vec![Timestamp, Duration], Timestamp),
            (TemporalFunction::Floor, vec![Timestamp, Duration, Timestamp], Timestamp),
            (TemporalFunction::Floor, vec![Timeuuid, Duration], Timestamp),
            (TemporalFunction::Floor, vec![Timeuuid, Duration, Timestamp], Timestamp),
            (TemporalFunction::Floor, vec![Date, Duration], Date),
            (TemporalFunction::Floor, vec![Date, Duration, Date], Date),
            (TemporalFunction::Floor, vec![Time, Duration], Time),
        ],
        _ => Vec::new(),
    };
    signatures
        .into_iter()
        .map(|(function, arguments, returns)| {
            ResolvedFunction::new(name, arguments, returns, Implementation::Temporal(function))
        })
        .collect()
}

fn operations(operator: Operator) -> Vec<ResolvedFunction> {
    let name = operator.function_name();
    let mut functions = Vec::new();
    for left in &NUMERIC_TYPES {
        for right in &NUMERIC_TYPES {
            functions.push(ResolvedFunction::new(
                name,
                vec![left.clone(), right.clone()],
                numeric_result(left, right),
                Implementation::Operation(operator),
            ));
        }
    }
    if matches!(operator, Operator::Add | Operator::Subtract) {
        for ty in [CqlType::Timestamp, CqlType::Date] {
            let arguments = vec![ty.clone(), CqlType::Duration];
            functions.push(ResolvedFunction::new(name, arguments, ty, Implementation::Operation(operator)));
        }
    }
    if operator == Operator::Add {
        use CqlType::{Ascii, Text};
        for (left, right, result) in
            [(Text, Text, Text), (Ascii, Ascii, Ascii), (Ascii, Text, Text), (Text, Ascii, Text)]
        {
            functions.push(ResolvedFunction::new(
                name,
                vec![left, right],
                result,
                Implementation::Concatenation,
            ));
        }
    }
    functions
}

/// The known properties of an argument when a call is resolved.
struct Argument<'a> {
    /// The type of a column or of a call.
    known: Option<&'a CqlType>,
    /// The natural type of a literal.
    natural: Option<&'a CqlType>,
    /// The argument's text in the statement, for messages.
    text: String,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    None,
    Weak,
    Exact,
}

impl Argument<'_> {
    fn is_open(&self) -> bool {
        self.known.is_none() && self.natural.is_none()
    }

    /// How well the argument matches a parameter of that type.
    fn matches(&self, parameter: &CqlType) -> Match {
        if let Some(known) = self.known {
            return if known.freeze() == parameter.freeze() {
                Match::Exact
            } else if parameter.is_assignable_from(known) {
                Match::Weak
            } else {
                Match::None
            };
        }
        match self.natural {
            Some(natural) if natural == parameter => Match::Exact,
            Some(natural) if is_composite(natural) && is_composite(parameter) => Match::Weak,
            Some(natural) if literal_kind(natural).is_some_and(|kind| kind.is_assignable_to(parameter)) => {
                Match::Weak
            }
            Some(_) => Match::None,
            None => Match::Weak,
        }
    }

    /// The type of the argument if nothing else determines it.
    fn own_type(&self) -> Option<&CqlType> {
        self.known.or(self.natural)
    }
}

/// Whether the values of a type have elements or fields. A literal of one such type may stand for another.
fn is_composite(value_type: &CqlType) -> bool {
    value_type.is_collection()
        || matches!(value_type, CqlType::Tuple(_) | CqlType::UserType { .. } | CqlType::Vector { .. })
}

/// The kind of the literals whose natural type this is.
fn literal_kind(natural: &CqlType) -> Option<LiteralKind> {
    Some(match natural {
        CqlType::Ascii | CqlType::Text => LiteralKind::String,
        CqlType::Int | CqlType::Bigint | CqlType::Varint => LiteralKind::Integer,
        CqlType::Double | CqlType::Float | CqlType::Decimal => LiteralKind::Float,
        CqlType::Boolean => LiteralKind::Boolean,
        CqlType::Uuid | CqlType::Timeuuid => LiteralKind::Uuid,
        CqlType::Blob => LiteralKind::Hex,
        CqlType::Duration => LiteralKind::Duration,
        _ => return None,
    })
}

/// Resolves a call. `known` has the types of arguments that have one (columns, calls), `natural` the natural types of
/// literals; an argument with neither is a bind marker or null. `hint` is the expected type of the result, if there
/// is one.
pub fn resolve_with_literals(
    name: &str,
    known: &[Option<CqlType>],
    natural: &[Option<CqlType>],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    resolve_described(name, known, natural, &[], hint)
}

/// Like [`resolve_with_literals`], with the texts of the arguments for error messages.
pub fn resolve_described(
    name: &str,
    known: &[Option<CqlType>],
    natural: &[Option<CqlType>],
    texts: &[String],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    resolve_among(name, &[], known, natural, texts, hint)
}

/// Like [`resolve_described`], with functions of users that the name may also mean.
#[inline(never)]
pub fn resolve_among(
    name: &str,
    others: &[ResolvedFunction],
    known: &[Option<CqlType>],
    natural: &[Option<CqlType>],
    texts: &[String],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    let arguments: Vec<Argument<'_>> = known
        .iter()
        .enumerate()
        .map(|(index, known)| {
            let natural = natural.get(index).and_then(Option::as_ref);
            let described = known.as_ref().or(natural).map_or_else(|| "?".to_owned(), ToString::to_string);
            let text = texts.get(index).cloned().unwrap_or(described);
            Argument { known: known.as_ref(), natural, text }
        })
        .collect();
    let native = native_name(name).map(|plain| (candidates(&plain), plain));
    match native {
        Some((Candidates::Generic(generic), plain)) => resolve_generic(generic, &plain, &arguments, hint),
        Some((Candidates::Overloads(mut overloads), plain)) => {
            overloads.extend_from_slice(others);
            choose(&plain, overloads, &arguments, hint)
        }
        _ if others.is_empty() => Err(RequestError::invalid(format!("Unknown function {name} called"))),
        _ => choose(name, others.to_vec(), &arguments, hint),
    }
}

fn choose(
    name: &str,
    mut overloads: Vec<ResolvedFunction>,
    arguments: &[Argument<'_>],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    if overloads.len() == 1
        && let Some(only) = overloads.pop()
    {
        return check_only(only, arguments);
    }
    let all = overloads.clone();
    let mut weak = Vec::new();
    for candidate in overloads {
        if hint.is_some_and(|hint| !hint.is_assignable_from(candidate.return_type())) {
            continue;
        }
        match match_all(&candidate, arguments) {
            Match::Exact => return Ok(candidate),
            Match::Weak => weak.push(candidate),
            Match::None => {}
        }
    }
    if weak.is_empty() && hint.is_some() {
        // No overload returns the expected type. The caller can report that better, with both types.
        return choose(name, all, arguments, None);
    }
    let text = |index: usize| arguments.get(index).map_or("", |argument| argument.text.as_str());
    let qualified_name = all.first().map_or(name, ResolvedFunction::qualified_name);
    let operator = Operator::ALL.into_iter().find(|operator| operator.function_name() == name);
    match (weak.len(), operator) {
        (1, _) => weak.pop().ok_or_else(|| RequestError::invalid("no candidate")),
        (0, Some(operator)) => Err(RequestError::invalid(format!(
            "the '{}' operation is not supported between {} and {}",
            operator.symbol(),
            text(0),
            text(1)
        ))),
        (0, None) => Err(RequestError::invalid(format!(
            "Invalid call to function {qualified_name}, none of its type signatures match (known type signatures: {})",
            signatures(&all)
        ))),
        (_, Some(operator)) => {
            // Without markers, operands of exactly the expected type decide.
            let settled = hint.filter(|_| !arguments.iter().any(Argument::is_open)).and_then(|hint| {
                weak.iter().find(|candidate| candidate.argument_types().iter().all(|ty| ty == hint))
            });
            settled.cloned().ok_or_else(|| {
                RequestError::invalid(format!(
                    "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                    operator.symbol(),
                    text(0),
                    text(1)
                ))
            })
        }
        (_, None) if name == NEGATION => {
            Err(RequestError::invalid("Ambiguous negation: use type casts to disambiguate"))
        }
        (_, None) => Err(RequestError::invalid(format!(
            "Ambiguous call to function {qualified_name} (can be matched by following signatures: {}): use type casts \
             to disambiguate",
            signatures(&weak)
        ))),
    }
}

/// Checks the arguments of a function without overloads: errors can name the argument.
fn check_only(only: ResolvedFunction, arguments: &[Argument<'_>]) -> Result<ResolvedFunction> {
    let required = only.argument_types().len();
    if required != arguments.len() {
        return Err(RequestError::invalid(format!(
            "Invalid number of arguments in call to function {}: {required} required but {} provided",
            only.qualified_name(),
            arguments.len()
        )));
    }
    for (index, (argument, ty)) in arguments.iter().zip(only.argument_types()).enumerate() {
        if argument.matches(ty) == Match::None {
            return Err(RequestError::invalid(format!(
                "Type error: {} cannot be passed as argument {index} of function {} of type {ty}",
                argument.text,
                only.qualified_name()
            )));
        }
    }
    Ok(only)
}

/// The worst match among the arguments.
fn match_all(candidate: &ResolvedFunction, arguments: &[Argument<'_>]) -> Match {
    if candidate.argument_types().len() != arguments.len() {
        return Match::None;
    }
    let matches = arguments.iter().zip(candidate.argument_types()).map(|(argument, ty)| argument.matches(ty));
    matches.min().unwrap_or(Match::Exact)
}

fn signatures(functions: &[ResolvedFunction]) -> String {
    functions.iter().map(ResolvedFunction::signature).collect::<Vec<_>>().join(", ")
}

fn resolve_generic(
    generic: Generic,
    name: &str,
    arguments: &[Argument<'_>],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    if let Generic::Masking(function) = generic {
        return resolve_masking(function, name, arguments, hint);
    }
    let (parameters, required) = match generic {
        Generic::ToJson | Generic::OctetLength => ("any", 1),
        Generic::FromJson => ("text", 1),
        Generic::Collection(CollectionFunction::MapKeys | CollectionFunction::MapValues) => ("map", 1),
        Generic::Collection(CollectionFunction::Count) => ("collection", 1),
        Generic::Collection(_) => ("numeric_set_or_list", 1),
        Generic::Similarity(_) => ("vector<float, n>, vector<float, n>", 2),
        Generic::Masking(function) => (function.parameters(), *function.arity().start()),
    };
    if arguments.len() != required {
        return Err(RequestError::invalid(format!(
            "Invalid number of arguments for function system.{name}({parameters})"
        )));
    }
    if let Generic::FromJson = generic {
        return from_json(name, arguments, hint);
    }
    if let Generic::Similarity(similarity) = generic {
        return resolve_similarity(similarity, name, arguments, hint);
    }
    let first = arguments.first();
    let text = first.map_or("", |argument| argument.text.as_str());
    let ty =
        first.and_then(|argument| argument.own_type()).ok_or_else(|| cannot_infer(name, parameters, text))?;
    let (returns, implementation) = match generic {
        Generic::ToJson => (CqlType::Text, Implementation::ToJson),
        Generic::OctetLength => (CqlType::Int, Implementation::OctetLength),
        Generic::Collection(function) => {
            let returns = function.return_type(ty).map_err(|required| {
                RequestError::invalid(format!(
                    "Function system.{name} requires a {required} argument, but found argument {text} of type {ty}"
                ))
            })?;
            (returns, Implementation::Collection(function))
        }
        Generic::FromJson | Generic::Similarity(_) | Generic::Masking(_) => {
            return Err(cannot_infer(name, parameters, text));
        }
    };
    Ok(ResolvedFunction::new(name, vec![ty.clone()], returns, implementation))
}

fn cannot_infer(name: &str, parameters: &str, text: &str) -> RequestError {
    RequestError::invalid(format!(
        "Cannot infer type of argument {text} in call to function system.{name}({parameters}): use type casts to \
         disambiguate"
    ))
}

fn from_json(name: &str, arguments: &[Argument<'_>], hint: Option<&CqlType>) -> Result<ResolvedFunction> {
    let Some(hint) = hint else {
        return Err(RequestError::invalid(
            "from_json() cannot be used in the selection clause of a SELECT statement",
        ));
    };
    if let Some(argument) = arguments.iter().find(|argument| argument.matches(&CqlType::Text) == Match::None)
    {
        let ty = argument.own_type().map(ToString::to_string).unwrap_or_default();
        return Err(RequestError::invalid(format!(
            "Function system.{name} requires an argument of type text, but found argument {} of type {ty}",
            argument.text
        )));
    }
    Ok(ResolvedFunction::new(name, vec![CqlType::Text], hint.clone(), Implementation::FromJson))
}

/// Resolves a function that hides its first argument, whose type decides about the others.
fn resolve_masking(
    function: MaskingFunction,
    name: &str,
    arguments: &[Argument<'_>],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    let parameters = function.parameters();
    if !function.arity().contains(&arguments.len()) {
        return Err(RequestError::invalid(format!(
            "Invalid number of arguments for function system.{name}({parameters})"
        )));
    }
    let wrong = |argument: &Argument<'_>, required: &str| {
        let ty = argument.own_type().map(ToString::to_string).unwrap_or_default();
        RequestError::invalid(format!(
            "Function system.{name} requires an argument of type {required}, but found argument {} of type {ty}",
            argument.text
        ))
    };
    let is_text = matches!(function, MaskingFunction::Inner | MaskingFunction::Outer);
    let [first, others @ ..] = arguments else { return Err(cannot_infer(name, parameters, "")) };
    // The result has the type of the first argument.
    let expected = hint.filter(|_| function != MaskingFunction::Hash);
    let known = first.known.or_else(|| expected.filter(|hint| first.matches(hint) != Match::None));
    let ty = known.or(first.natural).ok_or_else(|| cannot_infer(name, parameters, &first.text))?;
    if is_text && !matches!(ty, CqlType::Text | CqlType::Ascii) {
        return Err(wrong(first, "string"));
    }
    let mut types = function.parameter_types(ty);
    types.truncate(arguments.len());
    for (argument, ty) in others.iter().zip(&types[1..]) {
        if argument.matches(ty) == Match::None {
            return Err(wrong(argument, &ty.to_string()));
        }
    }
    if function == MaskingFunction::Default
        && let Err(Failure::Invalid(refusal) | Failure::Execution(refusal)) = masking::default_value(ty)
    {
        return Err(RequestError::Invalid(refusal));
    }
    let returns = function.return_type(ty);
    Ok(ResolvedFunction::new(name, types, returns, Implementation::Masking(function)))
}

/// Resolves a similarity function: both arguments are float vectors of one dimension. One of them may be a marker, which takes the
/// other's type.
fn resolve_similarity(
    similarity: Similarity,
    name: &str,
    arguments: &[Argument<'_>],
    hint: Option<&CqlType>,
) -> Result<ResolvedFunction> {
    let vector = arguments.iter().find_map(|argument| argument.known).or(hint);
    let text = arguments.first().map_or("", |argument| argument.text.as_str());
    let Some(vector) = vector else {
        return Err(cannot_infer(name, "vector<float, n>, vector<float, n>", text));
    };
    for argument in arguments {
        let natural = argument.natural.filter(|natural| !is_composite(natural));
        let ty = argument.known.or(natural).unwrap_or(vector);
        if !matches!(ty, CqlType::Vector { element, .. } if **element == CqlType::Float) {
            return Err(RequestError::invalid(format!(
                "Function system.{name} requires a float vector argument, but found argument {} of type {ty}",
                argument.text
            )));
        }
        if ty != vector {
            return Err(RequestError::invalid("All arguments must have the same vector dimensions"));
        }
    }
    Ok(ResolvedFunction::new(
        name,
        vec![vector.clone(), vector.clone()],
        CqlType::Float,
        Implementation::Similarity(similarity),
    ))
}

/// The function that casts one type to another.
pub fn resolve_cast(from: &CqlType, to: &CqlType) -> Result<ResolvedFunction> {
    let cast = Cast::between(from, to)
        .ok_or_else(|| RequestError::invalid(format!("{from} cannot be cast to {to}")))?;
    let name = format!("cast_as_{to}");
    Ok(ResolvedFunction::new(&name, vec![from.clone()], to.clone(), Implementation::Cast(cast)))
}
