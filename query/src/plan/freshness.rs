//! `WITH FRESHNESS`: up to when a view must be true before it is read. Views are brought up to date after the writes of their base tables.

use cql_lite::syntax::ast::{Expression, Literal};
use cql_lite::types::CqlType;
use cql_lite::types::duration::Duration;

use super::names::NameScope;
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

impl Freshness {
    /// The time in microseconds since the epoch up to which the view must be true.
    pub fn until(&self, bindings: &Bindings<'_>, now_micros: i64) -> Result<i64> {
        let term = match self {
            Self::Age { micros } => return Ok(now_micros.saturating_sub(*micros)),
            Self::Time(term) => term,
        };
        match term.evaluate(bindings)? {
            Bound::Unset => Err(RequestError::invalid("Freshness value cannot be unset")),
            Bound::Null => Err(RequestError::invalid("Freshness value cannot be null")),
            Bound::Bytes(bytes) => {
                let time = bytes.as_ref().try_into().map(i64::from_be_bytes);
                time.map_err(|_| RequestError::invalid("Invalid freshness value"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::CallContext;
    use crate::plan::term::BindValue;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, with_view};
    use crate::statement::Statement;

    const NOW: i64 = 1_700_000_000_000_000;

    /// The time that a SELECT with this FRESHNESS asks for, or the error.
    fn asked(freshness: &str, values: &[BindValue<'_>]) -> std::result::Result<Option<i64>, String> {
        let tables = [
            "CREATE TABLE t (k int PRIMARY KEY, a int)",
            "CREATE TABLE v (a int, k int, PRIMARY KEY (a, k))",
        ];
        let schema = catalog_of(&[CREATE_KEYSPACE, tables[0], tables[1]]);
        let schema = with_view(&schema, "CREATE PROJECTION v AS SELECT * FROM t PRIMARY KEY (a, k)");
        let statement = Statement::new(&format!("SELECT * FROM {freshness}"), Some("ks"), &schema)
            .map_err(|error| error.to_string())?;
        let Statement::Select(select) = statement else { panic!("a SELECT") };
        let call = CallContext::at(NOW);
        let bindings = Bindings { values, call: &call };
        let until = select.plan.freshness.as_ref().map(|freshness| freshness.until(&bindings, NOW));
        until.transpose().map_err(|error| error.to_string())
    }

    #[test]
    fn a_duration_is_counted_back_from_now() {
        assert_eq!(asked("v", &[]), Ok(None));
        for (written, micros) in
            [("0ms", 0), ("0 ms", 0), ("1s500ms", 1_500_000), ("2 h", 7_200_000_000), ("9us", 9)]
        {
            assert_eq!(
                asked(&format!("v WITH FRESHNESS {written}"), &[]),
                Ok(Some(NOW - micros)),
                "{written}"
            );
        }
        for (written, error) in [
            ("-5 ms", "Freshness values must be non-negative"),
            ("1d", "Freshness values cannot be expressed in days/months"),
            ("1mo", "Freshness values cannot be expressed in days/months"),
            ("1s1s", "Invalid duration. The seconds are specified multiple times"),
        ] {
            assert_eq!(
                asked(&format!("v WITH FRESHNESS {written}"), &[]),
                Err(error.to_owned()),
                "{written}"
            );
        }
    }

    #[test]
    fn a_number_is_a_time() {
        assert_eq!(asked("v WITH FRESHNESS 1600000000000000", &[]), Ok(Some(1_600_000_000_000_000)));
        let value = 5_i64.to_be_bytes();
        assert_eq!(asked("v WITH FRESHNESS ?", &[BindValue::Bytes(&value)]), Ok(Some(5)));
        assert_eq!(
            asked("v WITH FRESHNESS :seen", &[BindValue::Null]),
            Err("Freshness value cannot be null".to_owned())
        );
        assert_eq!(
            asked("v WITH FRESHNESS ?", &[BindValue::Unset]),
            Err("Freshness value cannot be unset".to_owned())
        );
        assert!(asked("v WITH FRESHNESS 99999999999999999999", &[]).is_err());
    }

    #[test]
    fn only_views_become_true() {
        let error = "FRESHNESS is only for materialized views and projections";
        assert_eq!(asked("t WITH FRESHNESS 1s", &[]), Err(error.to_owned()));
    }
}
