//! Checks the values of USING TIMESTAMP and TTL.

use helenus_engine::Expiry;

use crate::error::{RequestError, Result};
use crate::plan::modify::{ModifyKind, ModifyPlan};
use crate::plan::term::{Bindings, Bound, Term};

/// The longest time to live: 20 years.
pub const MAX_TTL_SECONDS: i32 = 20 * 365 * 24 * 60 * 60;

/// The value of a USING TIMESTAMP; `None` when unset.
pub fn timestamp_value(term: &Term, bindings: &Bindings<'_>) -> Result<Option<i64>> {
    match term.evaluate(bindings)? {
        Bound::Unset => Ok(None),
        Bound::Null => Err(RequestError::invalid("Invalid null value of timestamp")),
        Bound::Bytes(bytes) => {
            let value = bytes.as_ref().try_into().map(i64::from_be_bytes);
            match value {
                Ok(i64::MIN) | Err(_) => Err(RequestError::invalid(format!(
                    "Out of bound timestamp, must be in [{}, {}]",
                    i64::MIN + 1,
                    i64::MAX
                ))),
                Ok(value) => Ok(Some(value)),
            }
        }
    }
}

pub(super) fn expiry(plan: &ModifyPlan, bindings: &Bindings<'_>, now_seconds: u32) -> Result<Option<Expiry>> {
    let default = plan.table.options.default_time_to_live;
    let ttl = match &plan.time_to_live {
        None => default as i32,
        Some(term) => match term.evaluate(bindings)? {
            Bound::Unset => default as i32,
            Bound::Null => 0,
            Bound::Bytes(bytes) => bytes
                .as_ref()
                .try_into()
                .map(i32::from_be_bytes)
                .map_err(|_| RequestError::invalid("Invalid TTL value"))?,
        },
    };
    if ttl < 0 {
        return Err(RequestError::invalid(format!("A TTL must be greater or equal to 0, but was {ttl}")));
    }
    if ttl > MAX_TTL_SECONDS {
        return Err(RequestError::invalid(format!(
            "ttl is too large. requested ({ttl}) maximum ({MAX_TTL_SECONDS})"
        )));
    }
    if ttl == 0 || plan.kind == ModifyKind::Delete {
        return Ok(None);
    }
    let expires_at = now_seconds.checked_add(ttl as u32).ok_or_else(|| {
        RequestError::invalid(format!(
            "Request on table {} with ttl of {ttl} seconds exceeds maximum supported expiration date of 2106-02-07T06:28:13+00:00. In order to avoid this use a lower TTL",
            plan.table.full_name()
        ))
    })?;
    Ok(Some(Expiry { ttl: ttl as u32, expires_at }))
}
