//! Aggregates over rows: count, min, max, sum and avg, and those of users. In native ones nulls do not count.
//!
//! Sums have the type of their input and wrap on overflow; averages of integers are cut to integers; sums of
//! floating-point numbers are compensated (Kahan). Over no values, min and max are null, the others zero.

use std::sync::Arc;

use cql_lite::types::CqlType;
use cql_lite::types::compare::compare;
use cql_lite::types::number::Decimal;
use num_bigint::BigInt;

use super::arithmetic::{NUMERIC_TYPES, Number, failed};
use super::context::CallContext;
use super::failure::{CallResult, Failure};
use super::names::native_name;
use super::user::{ResolvedAggregate, UserState};
use crate::error::{RequestError, Result};

/// The computation of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateKind {
    /// `count(*)`: rows
    CountRows,
    /// `count(x)`: values
    Count,
    Minimum,
    Maximum,
    Sum,
    Average,
}

fn kind_of(name: &str) -> Option<AggregateKind> {
    Some(match native_name(name)?.as_str() {
        "count" => AggregateKind::Count,
        "countrows" | "count_rows" => AggregateKind::CountRows,
        "min" => AggregateKind::Minimum,
        "max" => AggregateKind::Maximum,
        "sum" => AggregateKind::Sum,
        "avg" => AggregateKind::Average,
        _ => return None,
    })
}

/// Whether there is a native aggregate of that name (with or without `system.`).
pub fn is_aggregate(name: &str) -> bool {
    kind_of(name).is_some()
}

/// An aggregate with resolved types.
#[derive(Debug, Clone)]
pub enum AggregateFunction {
    Native(NativeAggregate),
    User(Arc<ResolvedAggregate>),
}

impl AggregateFunction {
    /// The type of the result.
    pub fn return_type(&self) -> &CqlType {
        match self {
            Self::Native(native) => native.return_type(),
            Self::User(aggregate) => &aggregate.definition.return_type,
        }
    }

    /// The state before the first row.
    pub fn new_state(&self) -> AggregateState {
        match self {
            Self::Native(native) => AggregateState::Native(native.new_state()),
            Self::User(aggregate) => AggregateState::User(UserState::new(aggregate)),
        }
    }
}

/// The state of an aggregate after the rows so far.
#[derive(Debug, Clone)]
pub enum AggregateState {
    Native(NativeState),
    User(UserState),
}

impl AggregateState {
    /// Adds a row: the wire bytes of the arguments.
    pub fn add(&mut self, arguments: &[Option<&[u8]>], context: &CallContext) -> Result<()> {
        match self {
            Self::Native(state) => state.add(arguments),
            Self::User(state) => state.add(arguments, context.user_functions()),
        }
    }

    /// The wire bytes of the result for the rows so far.
    pub fn result(&self, context: &CallContext) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Native(state) => state.result(),
            Self::User(state) => state.result(context.user_functions()),
        }
    }
}

/// A native aggregate with resolved types.
#[derive(Debug, Clone)]
pub struct NativeAggregate {
    kind: AggregateKind,
    argument_type: CqlType,
    return_type: CqlType,
}

impl NativeAggregate {
    fn return_type(&self) -> &CqlType {
        &self.return_type
    }

    fn new_state(&self) -> NativeState {
        NativeState::new(self.kind, &self.argument_type)
    }
}

/// `count(*)`.
pub fn count_rows() -> AggregateFunction {
    AggregateFunction::Native(NativeAggregate {
        kind: AggregateKind::CountRows,
        argument_type: CqlType::Empty,
        return_type: CqlType::Bigint,
    })
}

/// Resolves the aggregate of that name for arguments of those types (`count` without arguments counts rows). `None`
/// if no aggregate has that name.
pub fn resolve_aggregate(name: &str, types: &[CqlType]) -> Result<Option<AggregateFunction>> {
    let (Some(mut kind), Some(plain)) = (kind_of(name), native_name(name)) else { return Ok(None) };
    if kind == AggregateKind::Count && types.is_empty() {
        kind = AggregateKind::CountRows;
    }
    let required = usize::from(kind != AggregateKind::CountRows);
    if types.len() != required {
        return Err(RequestError::invalid(format!(
            "Invalid number of arguments in call to function system.{plain}: {required} required but {} provided",
            types.len()
        )));
    }
    let argument_type = types.first().cloned().unwrap_or(CqlType::Empty);
    if matches!(kind, AggregateKind::Sum | AggregateKind::Average) && !argument_type.is_numeric() {
        let signatures: Vec<String> =
            NUMERIC_TYPES.iter().map(|ty| format!("system.{plain} : ({ty}) -> {ty}")).collect();
        return Err(RequestError::invalid(format!(
            "Invalid call to function system.{plain}, none of its type signatures match (known type signatures: {})",
            signatures.join(", ")
        )));
    }
    let return_type = match kind {
        AggregateKind::CountRows | AggregateKind::Count => CqlType::Bigint,
        _ => argument_type.clone(),
    };
    Ok(Some(AggregateFunction::Native(NativeAggregate { kind, argument_type, return_type })))
}

/// The state of a native aggregate after the rows so far.
#[derive(Debug, Clone)]
pub struct NativeState {
    kind: AggregateKind,
    ty: CqlType,
    accumulated: Accumulated,
}

#[derive(Debug, Clone)]
enum Accumulated {
    Count(i64),
    /// The smallest or largest value.
    Extreme(Option<Vec<u8>>),
    Integer {
        sum: i128,
        count: i64,
    },
    Floating(FloatingSum),
    Varint {
        sum: BigInt,
        count: i64,
    },
    DecimalSum(Decimal),
    DecimalAverage {
        average: Decimal,
        count: i64,
    },
}

/// A compensated sum of floating-point numbers, and the values needed to average them without overflow.
#[derive(Debug, Clone, Default)]
struct FloatingSum {
    sum: f64,
    compensation: f64,
    simple_sum: f64,
    count: i64,
    /// Set once the sum of finite numbers left the range of a double.
    exact: Option<Decimal>,
}

impl FloatingSum {
    fn add(&mut self, number: f64) -> std::result::Result<(), Failure> {
        self.count += 1;
        self.simple_sum += number;
        if let Some(exact) = &self.exact {
            self.exact = Some(exact.add(&Decimal::from_f64(number).map_err(failed)?).map_err(failed)?);
            return Ok(());
        }
        let previous = self.sum;
        let compensated = number - self.compensation;
        self.sum = previous + compensated;
        self.compensation = (self.sum - previous) - compensated;
        if self.sum.is_infinite() && number.is_finite() && previous.is_finite() {
            let sum = Decimal::from_f64(previous).map_err(failed)?;
            self.exact = Some(sum.add(&Decimal::from_f64(number).map_err(failed)?).map_err(failed)?);
        }
        Ok(())
    }

    fn total(&self) -> f64 {
        let total = self.sum + self.compensation;
        // Infinities of one sign turn the compensated sum into NaN.
        if total.is_nan() && self.simple_sum.is_infinite() { self.simple_sum } else { total }
    }

    fn average(&self) -> std::result::Result<f64, Failure> {
        match &self.exact {
            _ if self.count == 0 => Ok(0.0),
            None => Ok(self.total() / self.count as f64),
            Some(exact) => Ok(exact.divide(&Decimal::from(self.count)).map_err(failed)?.to_f64()),
        }
    }
}

impl NativeState {
    pub(super) fn new(kind: AggregateKind, ty: &CqlType) -> NativeState {
        let accumulated = match (kind, ty) {
            (AggregateKind::CountRows | AggregateKind::Count, _) => Accumulated::Count(0),
            (AggregateKind::Minimum | AggregateKind::Maximum, _) => Accumulated::Extreme(None),
            (_, CqlType::Float | CqlType::Double) => Accumulated::Floating(FloatingSum::default()),
            (_, CqlType::Varint) => Accumulated::Varint { sum: BigInt::ZERO, count: 0 },
            (AggregateKind::Sum, CqlType::Decimal) => Accumulated::DecimalSum(Decimal::zero()),
            (AggregateKind::Average, CqlType::Decimal) => {
                Accumulated::DecimalAverage { average: Decimal::zero(), count: 0 }
            }
            _ => Accumulated::Integer { sum: 0, count: 0 },
        };
        NativeState { kind, ty: ty.clone(), accumulated }
    }

    /// Adds a row: the wire bytes of the argument, if the aggregate has one.
    fn add(&mut self, arguments: &[Option<&[u8]>]) -> Result<()> {
        let result = if self.kind == AggregateKind::CountRows {
            self.accumulate(Some(&[]))
        } else {
            self.accumulate(arguments.first().copied().flatten())
        };
        result.map_err(|failure| self.error(failure))
    }

    /// The wire bytes of the result for the rows so far.
    fn result(&self) -> Result<Option<Vec<u8>>> {
        self.compute().map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> RequestError {
        match failure {
            Failure::Invalid(message) => RequestError::Invalid(message),
            Failure::Execution(problem) => RequestError::Function {
                keyspace: "system".to_owned(),
                function: if self.kind == AggregateKind::Sum { "sum" } else { "avg" }.to_owned(),
                arguments: vec![self.ty.to_string()],
                message: problem,
            },
        }
    }

    pub(super) fn accumulate(&mut self, value: Option<&[u8]>) -> std::result::Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        match &mut self.accumulated {
            Accumulated::Count(count) => *count += 1,
            Accumulated::Extreme(extreme) => {
                let replaces = extreme.as_deref().is_none_or(|current| {
                    let order = compare(&self.ty, value, current);
                    if self.kind == AggregateKind::Minimum { order.is_lt() } else { order.is_gt() }
                });
                if replaces {
                    *extreme = Some(value.to_vec());
                }
            }
            numeric => {
                // The empty value of a numeric type counts as null.
                if let Some(number) = Number::read(&self.ty, value) {
                    add_number(numeric, &number)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn compute(&self) -> CallResult {
        let is_sum = self.kind == AggregateKind::Sum;
        let number = match &self.accumulated {
            Accumulated::Count(count) => return Ok(Some(count.to_be_bytes().to_vec())),
            Accumulated::Extreme(extreme) => return Ok(extreme.clone()),
            // A sum wraps in its type; an average is in its range.
            Accumulated::Integer { sum, .. } if is_sum => Number::Integer(*sum as i64),
            // As in Cassandra, the average of no integers is 0.
            Accumulated::Integer { sum, count } => {
                Number::Integer(sum.checked_div(i128::from(*count)).unwrap_or(0) as i64)
            }
            Accumulated::Floating(floating) if is_sum => Number::Double(floating.total()),
            Accumulated::Floating(floating) => Number::Double(floating.average()?),
            Accumulated::Varint { sum, .. } if is_sum => Number::Varint(sum.clone()),
            Accumulated::Varint { sum, count } => Number::Varint(sum / (*count).max(1)),
            Accumulated::DecimalSum(sum) => Number::Decimal(sum.clone()),
            Accumulated::DecimalAverage { average, .. } => Number::Decimal(average.clone()),
        };
        number.write(&self.ty).map(Some)
    }
}

fn add_number(accumulated: &mut Accumulated, number: &Number) -> std::result::Result<(), Failure> {
    match accumulated {
        Accumulated::Integer { sum, count } => {
            *sum += i128::from(number.to_i64()?);
            *count += 1;
        }
        Accumulated::Floating(floating) => floating.add(number.to_f64())?,
        Accumulated::Varint { sum, count } => {
            *sum += number.to_varint()?;
            *count += 1;
        }
        Accumulated::DecimalSum(sum) => *sum = sum.add(&number.to_decimal()?).map_err(failed)?,
        Accumulated::DecimalAverage { average, count } => {
            *count += 1;
            // As in Cassandra, each value moves the average by its share, rounded half to even in the scale of the
            // difference.
            let difference = number.to_decimal()?.subtract(average).map_err(failed)?;
            let share = divide_half_even(&difference, *count);
            *average = average.add(&share).map_err(failed)?;
        }
        Accumulated::Count(_) | Accumulated::Extreme(_) => {}
    }
    Ok(())
}

/// The quotient in the scale of the dividend, rounded half to even.
fn divide_half_even(dividend: &Decimal, divisor: i64) -> Decimal {
    let divisor = BigInt::from(divisor);
    let quotient = num_integer::Integer::div_floor(&dividend.unscaled, &divisor);
    let remainder = &dividend.unscaled - &quotient * &divisor;
    let rounded_up = match (remainder * 2u8).cmp(&divisor) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => num_integer::Integer::is_odd(&quotient),
    };
    Decimal { unscaled: if rounded_up { quotient + 1 } else { quotient }, scale: dividend.scale }
}
