//! `WITH FRESHNESS`: up to when a view must be true before it is read. Views are brought up to date after the writes of their base tables.

use cql_lite::syntax::ast::{Expression, Literal};
use cql_lite::types::CqlType;
use cql_lite::types::duration::Duration;

use super::names::NameScope;
use super::select::SelectPlan;
use super::term::{Bindings, Bound, Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;

const NANOSECONDS_PER_MICROSECOND: i64 = 1_000;

/// Up to when a view must be true.
#[derive(Debug)]
pub enum Freshness {
    /// Up to so many microseconds before it is read.
    Age { micros: i64 },
    /// Up to a time in microseconds since the epoch, a bigint: that of a write.
    Time(Term),
}

/// Plans the FRESHNESS of a SELECT on a table.
pub fn plan_freshness(
    written: &Expression,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Freshness> {
    if table.view.is_none() {
        return Err(RequestError::invalid("FRESHNESS is only for materialized views and projections"));
    }
    match written {
        Expression::Literal(Literal::Duration(text)) => Ok(Freshness::Age { micros: age_micros(text)? }),
        time => {
            resolve(time, &Receiver::new("[freshness]", CqlType::Bigint), scope, markers).map(Freshness::Time)
        }
    }
}

fn age_micros(text: &str) -> Result<i64> {
    let age = Duration::parse(text).map_err(|error| RequestError::invalid(error.to_string()))?;
    if age.months != 0 || age.days != 0 {
        return Err(RequestError::invalid("Freshness values cannot be expressed in days/months"));
    }
    if age.nanoseconds < 0 {
        return Err(RequestError::invalid("Freshness values must be non-negative"));
    }
    Ok(age.nanoseconds / NANOSECONDS_PER_MICROSECOND)
}

impl SelectPlan {
    /// The time in microseconds since the epoch up to which the view must be true; `None`: the statement does not say.
    pub fn freshness(&self, bindings: &Bindings<'_>, now_micros: i64) -> Result<Option<i64>> {
        let term = match &self.freshness {
            None => return Ok(None),
            Some(Freshness::Age { micros }) => return Ok(Some(now_micros.saturating_sub(*micros))),
            Some(Freshness::Time(term)) => term,
        };
        match term.evaluate(bindings)? {
            Bound::Unset => Err(RequestError::invalid("Freshness value cannot be unset")),
            Bound::Null => Err(RequestError::invalid("Freshness value cannot be null")),
            Bound::Bytes(bytes) => {
                let time = bytes.as_ref().try_into().map(i64::from_be_bytes);
                time.map(Some).map_err(|_| RequestError::invalid("Invalid freshness value"))
            }
        }
    }
}
