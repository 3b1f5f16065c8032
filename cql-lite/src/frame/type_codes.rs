//! Types in column metadata: option codes with their parameters.
//!
//! Vectors, and types that a version does not have, are sent as the name of their Java class. `frozen` is not sent.

use bytes::{BufMut, BytesMut};

use super::{
    error::DecodeError,
    version::ProtocolVersion,
    wire::{self, Reader},
};
use crate::types::{CqlType, UserType};

/// Maximum nesting of received types.
const NESTING_MAX: usize = 32;

const CUSTOM: u16 = 0x0000;
const DATE: u16 = 0x0011;
const TINYINT: u16 = 0x0014;
const DURATION: u16 = 0x0015;
const LIST: u16 = 0x0020;
const MAP: u16 = 0x0021;
const SET: u16 = 0x0022;
const USER_TYPE: u16 = 0x0030;
const TUPLE: u16 = 0x0031;

/// Appends a type.
pub fn put_type(out: &mut BytesMut, version: ProtocolVersion, cql_type: &CqlType) {
    let code = match cql_type.option_code() {
        DATE..=TINYINT if version < ProtocolVersion::V4 => CUSTOM,
        DURATION if version < ProtocolVersion::V5 => CUSTOM,
        code => code,
    };
    out.put_u16(code);
    if code == CUSTOM {
        // Some drivers cannot parse the space that Cassandra writes before the comma of a vector.
        wire::put_string(out, &cql_type.class_name().replace(" , ", ", "));
        return;
    }
    match cql_type {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => put_type(out, version, element),
        CqlType::Map { key, value, .. } => {
            put_type(out, version, key);
            put_type(out, version, value);
        }
        CqlType::UserType { definition, .. } => {
            wire::put_string(out, &definition.keyspace);
            wire::put_string(out, &definition.name);
            out.put_u16(definition.field_names.len() as u16);
            for (name, field) in definition.field_names.iter().zip(&definition.field_types) {
                wire::put_string(out, name);
                put_type(out, version, field);
            }
        }
        CqlType::Tuple(fields) => {
            out.put_u16(fields.len() as u16);
            for field in fields.iter() {
                put_type(out, version, field);
            }
        }
        _ => {}
    }
}

/// Reads a type (client side). The type is not frozen at its top level, and frozen inside.
pub fn read_type(reader: &mut Reader<'_>) -> Result<CqlType, DecodeError> {
    read_nested(reader, 0)
}

fn read_nested(reader: &mut Reader<'_>, depth: usize) -> Result<CqlType, DecodeError> {
    const WHAT: &str = "a type";
    if depth > NESTING_MAX {
        return Err(DecodeError::TypesNestedTooDeep { limit: NESTING_MAX });
    }
    let code = reader.u16(WHAT)?;
    let nested = |reader: &mut Reader<'_>| read_nested(reader, depth + 1);
    Ok(match code {
        CUSTOM => parse_class(reader.string("the class of a type")?, depth)?,
        LIST => CqlType::list(nested(reader)?, false),
        SET => CqlType::set(nested(reader)?, false),
        MAP => CqlType::map(nested(reader)?, nested(reader)?, false),
        USER_TYPE => {
            let keyspace = reader.string("the keyspace of a type")?.into();
            let name = reader.string("the name of a type")?.into();
            let count = usize::from(reader.u16("the number of fields")?);
            let fields =
                reader.repeat(count, 4, |reader| Ok((reader.string("a field")?.into(), nested(reader)?)))?;
            let (field_names, field_types) = fields.into_iter().unzip();
            let definition = UserType { keyspace, name, field_names, field_types };
            CqlType::UserType { definition: definition.into(), frozen: false }
        }
        TUPLE => {
            let count = usize::from(reader.u16("the number of fields")?);
            CqlType::tuple(reader.repeat(count, 2, nested)?)
        }
        code => CqlType::natives()
            .find(|native| native.option_code() == code)
            .ok_or(DecodeError::UnknownTypeCode { code })?,
    })
}

/// Parses a class name: native types and vectors. Any other class is a custom type.
fn parse_class(class: &str, depth: usize) -> Result<CqlType, DecodeError> {
    if depth > NESTING_MAX {
        return Err(DecodeError::TypesNestedTooDeep { limit: NESTING_MAX });
    }
    if let Some(native) = CqlType::natives().find(|native| native.class_name() == class) {
        return Ok(native);
    }
    let Some(parameters) = class
        .strip_prefix("org.apache.cassandra.db.marshal.VectorType(")
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return Ok(CqlType::Custom(class.into()));
    };
    let invalid = || DecodeError::UnknownTypeClass { class: class.to_owned() };
    let (element, dimension) = parameters.rsplit_once(',').ok_or_else(invalid)?;
    let dimension = dimension.trim().parse().map_err(|_| invalid())?;
    Ok(CqlType::vector(parse_class(element.trim(), depth + 1)?, dimension))
}
