//! Cells of a column as one value of the log: collections are frozen, and a list is a map from the timeuuids that place its elements.

use cql_lite::types::{CqlType, codec, ordered, timeuuid};
use helenus_query::error::{RequestError, Result};

/// The cell of an element: path and value.
pub type Element<'a> = (&'a [u8], &'a [u8]);

/// Bytes of timeuuids are compared as signed numbers.
const SIGN: u8 = 0x80;

/// The wire bytes of the elements of a column of many cells, as its column in the log has them. `elements`: at least one, in the order of
/// their paths.
pub fn elements_value(column_type: &CqlType, elements: &[Element<'_>]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if let CqlType::UserType { definition, .. } = column_type {
        let mut next = elements.iter().peekable();
        for field in 0..definition.field_types.len() {
            let path = u16::try_from(field).map_err(|error| malformed(&error))?.to_be_bytes();
            let value = next.next_if(|(at, _)| *at == path);
            codec::write_field(value.map(|(_, value)| *value), &mut out);
        }
        return Ok(out);
    }
    codec::write_count(elements.len(), &mut out);
    for (path, value) in elements {
        write_key(column_type, path, &mut out)?;
        if !matches!(column_type, CqlType::Set { .. }) {
            codec::write_element(value, &mut out);
        }
    }
    Ok(out)
}

/// The set of the keys of elements, as the log shows those that were removed.
pub fn keys_value(column_type: &CqlType, paths: &[&[u8]]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    codec::write_count(paths.len(), &mut out);
    for path in paths {
        write_key(column_type, path, &mut out)?;
    }
    Ok(out)
}

fn write_key(column_type: &CqlType, path: &[u8], out: &mut Vec<u8>) -> Result<()> {
    match column_type {
        CqlType::List { .. } => codec::write_element(&list_key(path)?, out),
        CqlType::Set { element: key, .. } | CqlType::Map { key, .. } => {
            let (mut rest, mut outcome) = (path, Ok(()));
            codec::write_element_with(out, |out| outcome = ordered::decode(key, &mut rest, false, out));
            outcome.map_err(|error| malformed(&error))?;
        }
        // The position of a field.
        _ => codec::write_element(path, out),
    }
    Ok(())
}

/// The timeuuid of an element of a list. Its time is the one at which the element was written, before 1970 for those before all earlier ones;
/// its node is the element's number among those of that time. So timeuuids have the order of the elements.
fn list_key(path: &[u8]) -> Result<[u8; 16]> {
    let (micros, number) = path.split_first_chunk::<8>().ok_or_else(|| malformed(&"a short place"))?;
    let number: [u8; 4] = number.try_into().map_err(|error| malformed(&error))?;
    let micros = (u64::from_be_bytes(*micros) ^ (1 << 63)) as i64;
    let [n0, n1, n2, n3] = number.map(|byte| byte ^ SIGN);
    let node = [SIGN, SIGN, n0, n1, n2, n3];
    Ok(*timeuuid::from_micros(micros, 0, 0, node).as_bytes())
}

fn malformed(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::Server(format!("an element of a collection is malformed: {error}"))
}

#[cfg(test)]
mod tests {
    use cql_lite::types::compare;

    use super::*;

    #[test]
    fn timeuuids_of_a_list_have_the_order_of_its_elements() {
        let now = 1_700_000_000_000_000_i64;
        let mut keys = Vec::new();
        for micros in [-now - 1, -now, now, now + 1] {
            for number in [0_u32, 1, 127, 128, 255, 256, u32::MAX / 2, u32::MAX] {
                let micros = ((micros as u64) ^ (1 << 63)).to_be_bytes();
                keys.push(list_key(&[&micros[..], &number.to_be_bytes()].concat()).unwrap());
            }
        }
        let ordered = |pair: &[[u8; 16]]| compare::compare(&CqlType::Timeuuid, &pair[0], &pair[1]).is_lt();
        assert!(keys.windows(2).all(ordered));
        assert_eq!(keys[16][6] >> 4, 1, "a UUID of version 1");
        assert!(list_key(&[0; 11]).is_err() && list_key(&[0; 13]).is_err());
    }
}
