//! Writing and reading components. The format is described in the parent module.

use super::super::codec;
use super::super::compare::{java_order_f32, java_order_f64};
use super::super::cql_type::CqlType;
use super::super::timeuuid;
use super::super::value_error::ValueError;
use super::error::OrderedError;
use super::number;

const END: u8 = 0x3E;
const NULL: u8 = 0x3F;
const EMPTY: u8 = 0x40;
const VALUE: u8 = 0x41;

/// The largest marker: [`VALUE`] plus the largest UUID version.
const LAST_MARKER: u8 = VALUE + 0x0F;

/// A zero byte within text is followed by this.
const ESCAPED_ZERO: u8 = 0xFF;

/// A zero byte followed by this ends text.
const TERMINATOR: u8 = 0x00;

/// Appends the component of a value. After an error `out` may end with a partial component.
#[inline]
pub fn encode(ty: &CqlType, wire: &[u8], descending: bool, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    write_component(ty, wire, &mut Writer { out, mask: mask(descending) })
}

/// Mask that is applied to every byte by exclusive or: all ones in descending order.
#[inline]
fn mask(descending: bool) -> u8 {
    if descending { 0xFF } else { 0 }
}

/// Decodes the component at the front of `input`, removes it, and appends the wire bytes of its value. After an error
/// the contents of `out` and the position in `input` are unspecified.
#[inline]
pub fn decode(
    ty: &CqlType,
    input: &mut &[u8],
    descending: bool,
    out: &mut Vec<u8>,
) -> Result<(), OrderedError> {
    let mask = mask(descending);
    // Most clustering columns are times or numbers of eight bytes: their values are copied without a call.
    if let CqlType::Bigint | CqlType::Timestamp = ty
        && let Some((&[marker, ref value @ ..], rest)) = input.split_first_chunk::<9>()
        && marker == VALUE ^ mask
    {
        out.extend_from_slice(&flip_sign(masked::<8>(*value, mask)));
        *input = rest;
        return Ok(());
    }
    decode_any(ty, input, mask, out)
}

/// [`decode`] of any type, apart so that the usual case is small enough to stand where it is called.
#[inline(never)]
fn decode_any(ty: &CqlType, input: &mut &[u8], mask: u8, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    let mut reader = Reader { input, mask };
    let marker = reader.byte()?;
    decode_after(ty, marker, &mut reader, out)?;
    *input = reader.input;
    Ok(())
}

/// Writes bytes; the caller passes them as in ascending order.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    mask: u8,
}

impl Writer<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.out.push(byte ^ self.mask);
    }

    /// A marker and a fixed number of bytes.
    #[inline]
    fn value<const N: usize>(&mut self, marker: u8, bytes: [u8; N]) {
        self.out.reserve(N + 1);
        self.out.push(marker ^ self.mask);
        self.out.extend_from_slice(&masked(bytes, self.mask));
    }

    /// Calls `write` to append bytes as in ascending order, then inverts them in descending order.
    #[inline]
    fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let start = self.out.len();
        let result = write(self.out);
        if self.mask != 0 {
            invert(self.out, start);
        }
        result
    }
}

/// The bytes combined with the mask, eight at a time.
#[inline]
fn masked<const N: usize>(mut bytes: [u8; N], mask: u8) -> [u8; N] {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes([mask; 8])).to_ne_bytes();
    }
    for byte in rest {
        *byte ^= mask;
    }
    bytes
}

/// Inverts the bytes from `start` on.
#[inline]
fn invert(out: &mut [u8], start: usize) {
    for byte in out.get_mut(start..).unwrap_or_default() {
        *byte = !*byte;
    }
}

#[inline]
fn write_fixed<const N: usize>(
    ty: &CqlType,
    wire: &[u8],
    writer: &mut Writer<'_>,
    key: impl Fn([u8; N]) -> [u8; N],
) -> Result<(), OrderedError> {
    let bytes: [u8; N] = wire.try_into().map_err(|_| ValueError::wrong_length(ty, wire.len()))?;
    writer.value(VALUE, key(bytes));
    Ok(())
}

#[inline]
fn flip_sign<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    bytes
}

fn write_component(ty: &CqlType, wire: &[u8], writer: &mut Writer<'_>) -> Result<(), OrderedError> {
    if wire.is_empty() {
        writer.byte(EMPTY);
        return Ok(());
    }
    match ty {
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => {
            write_fixed::<8>(ty, wire, writer, flip_sign)
        }
        CqlType::Int => write_fixed::<4>(ty, wire, writer, flip_sign),
        CqlType::Text
        | CqlType::Ascii
        | CqlType::Blob
        | CqlType::Inet
        | CqlType::Duration
        | CqlType::Custom(_) => {
            writer.byte(VALUE);
            writer.append(|out| escape(wire, out));
            Ok(())
        }
        CqlType::Timeuuid => {
            write_fixed::<16>(ty, wire, writer, |bytes| timeuuid::timeuuid_sort_key(bytes).to_be_bytes())
        }
        CqlType::Uuid => {
            let bytes: [u8; 16] = wire.try_into().map_err(|_| ValueError::wrong_length(ty, wire.len()))?;
            let (version, key) = timeuuid::uuid_sort_key(bytes);
            writer.value(VALUE + version, key.to_be_bytes());
            Ok(())
        }
        CqlType::Smallint => write_fixed::<2>(ty, wire, writer, flip_sign),
        CqlType::Tinyint => write_fixed::<1>(ty, wire, writer, flip_sign),
        CqlType::Date => write_fixed::<4>(ty, wire, writer, |bytes| bytes),
        CqlType::Time => write_fixed::<8>(ty, wire, writer, |bytes| bytes),
        CqlType::Boolean => write_fixed::<1>(ty, wire, writer, |byte| [u8::from(byte != [0])]),
        CqlType::Float => write_fixed::<4>(ty, wire, writer, |bytes| {
            flip_sign(java_order_f32(f32::from_be_bytes(bytes)).to_be_bytes())
        }),
        CqlType::Double => write_fixed::<8>(ty, wire, writer, |bytes| {
            flip_sign(java_order_f64(f64::from_be_bytes(bytes)).to_be_bytes())
        }),
        CqlType::Varint => {
            writer.byte(VALUE);
            writer.append(|out| number::encode_varint(wire, out));
            Ok(())
        }
        CqlType::Decimal => {
            writer.byte(VALUE);
            let written = writer.append(|out| number::encode_decimal(wire, out));
            written.ok_or_else(|| ValueError::wrong_length(ty, wire.len()).into())
        }
        CqlType::Empty => Err(ValueError::NotEmpty.into()),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            writer.byte(VALUE);
            for item in codec::elements(wire)? {
                write_component(element, item?, writer)?;
            }
            writer.byte(END);
            Ok(())
        }
        CqlType::Map { key, value, .. } => {
            writer.byte(VALUE);
            for entry in codec::entries(wire)? {
                let (key_bytes, value_bytes) = entry?;
                write_component(key, key_bytes, writer)?;
                write_component(value, value_bytes, writer)?;
            }
            writer.byte(END);
            Ok(())
        }
        CqlType::Tuple(fields) => write_fields(fields, wire, writer),
        CqlType::UserType { definition, .. } => write_fields(&definition.field_types, wire, writer),
        CqlType::Vector { element, dimension } => {
            writer.byte(VALUE);
            for item in codec::vector_elements(element, *dimension, wire) {
                write_component(element, item?, writer)?;
            }
            Ok(())
        }
    }
}

/// Appends bytes with their zeros escaped, and the terminator.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    let mut rest = bytes;
    while let Some(zero) = memchr::memchr(0, rest) {
        let (head, tail) = rest.split_at(zero + 1);
        out.extend_from_slice(head);
        out.push(ESCAPED_ZERO);
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, TERMINATOR]);
}

fn write_fields(types: &[CqlType], wire: &[u8], writer: &mut Writer<'_>) -> Result<(), OrderedError> {
    writer.byte(VALUE);
    // A null is only written when a value follows it, which leaves out nulls at the end.
    let mut pending_nulls = 0;
    for (ty, field) in types.iter().zip(codec::fields(wire)) {
        match field? {
            None => pending_nulls += 1,
            Some(bytes) => {
                for _ in 0..pending_nulls {
                    writer.byte(NULL);
                }
                pending_nulls = 0;
                write_component(ty, bytes, writer)?;
            }
        }
    }
    writer.byte(END);
    Ok(())
}

/// Reads bytes and returns them as in ascending order.
struct Reader<'a> {
    input: &'a [u8],
    mask: u8,
}

impl Reader<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, OrderedError> {
        let (first, rest) = self.input.split_first().ok_or(OrderedError::Truncated)?;
        self.input = rest;
        Ok(first ^ self.mask)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], OrderedError> {
        let (head, rest) = self.input.split_first_chunk::<N>().ok_or(OrderedError::Truncated)?;
        self.input = rest;
        Ok(masked(*head, self.mask))
    }

    /// Appends escaped bytes up to their terminator to `out`.
    fn bytes(&mut self, out: &mut Vec<u8>) -> Result<(), OrderedError> {
        loop {
            let zero = memchr::memchr(self.mask, self.input).ok_or(OrderedError::Truncated)?;
            let (head, rest) = self.input.split_at(zero);
            let start = out.len();
            out.extend_from_slice(head);
            if self.mask != 0 {
                invert(out, start);
            }
            self.input = rest.get(1..).unwrap_or_default();
            match self.byte()? {
                TERMINATOR => return Ok(()),
                ESCAPED_ZERO => out.push(0),
                byte => return Err(OrderedError::UnexpectedByte { byte }),
            }
        }
    }
}

impl number::Source for Reader<'_> {
    fn next_byte(&mut self) -> Option<u8> {
        self.byte().ok()
    }
}

#[inline]
fn decode_after(
    ty: &CqlType,
    marker: u8,
    reader: &mut Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<(), OrderedError> {
    if marker == VALUE {
        return decode_value(ty, reader, out);
    }
    match marker {
        EMPTY => Ok(()),
        VALUE..=LAST_MARKER if *ty == CqlType::Uuid => decode_uuid(marker - VALUE, reader, out),
        byte => Err(OrderedError::UnexpectedByte { byte }),
    }
}

fn decode_uuid(version: u8, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    let key = u128::from_be_bytes(reader.array()?);
    out.extend_from_slice(&timeuuid::from_uuid_sort_key(version, key));
    Ok(())
}

fn decode_value(ty: &CqlType, reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    match ty {
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => {
            out.extend_from_slice(&flip_sign(reader.array::<8>()?));
        }
        CqlType::Int => out.extend_from_slice(&flip_sign(reader.array::<4>()?)),
        CqlType::Text
        | CqlType::Ascii
        | CqlType::Blob
        | CqlType::Inet
        | CqlType::Duration
        | CqlType::Custom(_) => {
            reader.bytes(out)?;
        }
        CqlType::Timeuuid => {
            let key = u128::from_be_bytes(reader.array()?);
            out.extend_from_slice(&timeuuid::from_timeuuid_sort_key(key));
        }
        CqlType::Uuid => decode_uuid(0, reader, out)?,
        CqlType::Smallint => out.extend_from_slice(&flip_sign(reader.array::<2>()?)),
        CqlType::Tinyint => out.extend_from_slice(&flip_sign(reader.array::<1>()?)),
        CqlType::Date => out.extend_from_slice(&reader.array::<4>()?),
        CqlType::Time => out.extend_from_slice(&reader.array::<8>()?),
        CqlType::Boolean => out.extend_from_slice(&reader.array::<1>()?),
        CqlType::Float => {
            let ordered = i32::from_be_bytes(flip_sign(reader.array()?));
            out.extend_from_slice(&(ordered ^ (((ordered >> 31) as u32) >> 1) as i32).to_be_bytes());
        }
        CqlType::Double => {
            let ordered = i64::from_be_bytes(flip_sign(reader.array()?));
            out.extend_from_slice(&(ordered ^ (((ordered >> 63) as u64) >> 1) as i64).to_be_bytes());
        }
        CqlType::Varint => number::decode_varint(reader, out).ok_or(OrderedError::Truncated)?,
        CqlType::Decimal => number::decode_decimal(reader, out)?,
        CqlType::Empty => return Err(OrderedError::UnexpectedByte { byte: VALUE }),
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            decode_counted(reader, out, |marker, reader, out| {
                codec_element(out, |out| decode_after(element, marker, reader, out))
            })?;
        }
        CqlType::Map { key, value, .. } => decode_counted(reader, out, |marker, reader, out| {
            codec_element(out, |out| decode_after(key, marker, reader, out))?;
            let marker = reader.byte()?;
            codec_element(out, |out| decode_after(value, marker, reader, out))
        })?,
        CqlType::Tuple(fields) => decode_fields(fields, reader, out)?,
        CqlType::UserType { definition, .. } => decode_fields(&definition.field_types, reader, out)?,
        CqlType::Vector { element, dimension } => {
            let mut item = Vec::new();
            for _ in 0..*dimension {
                item.clear();
                let marker = reader.byte()?;
                decode_after(element, marker, reader, &mut item)?;
                codec::write_vector_element(element, &item, out);
            }
        }
    }
    Ok(())
}

/// Appends an element with its length before it.
fn codec_element(
    out: &mut Vec<u8>,
    decode: impl FnOnce(&mut Vec<u8>) -> Result<(), OrderedError>,
) -> Result<(), OrderedError> {
    let mut result = Ok(());
    codec::write_element_with(out, |out| result = decode(out));
    result
}

/// Reads items up to the end marker and writes their count in front of them.
fn decode_counted<'a>(
    reader: &mut Reader<'a>,
    out: &mut Vec<u8>,
    mut item: impl FnMut(u8, &mut Reader<'a>, &mut Vec<u8>) -> Result<(), OrderedError>,
) -> Result<(), OrderedError> {
    let start = out.len();
    codec::write_count(0, out);
    let mut count: i32 = 0;
    loop {
        let marker = reader.byte()?;
        if marker == END {
            break;
        }
        item(marker, reader, out)?;
        count = count.saturating_add(1);
    }
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    Ok(())
}

fn decode_fields(types: &[CqlType], reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    let mut ended = false;
    for ty in types {
        let marker = if ended { END } else { reader.byte()? };
        match marker {
            END => {
                ended = true;
                codec::write_null(out);
            }
            NULL => codec::write_null(out),
            marker => codec_element(out, |out| decode_after(ty, marker, reader, out))?,
        }
    }
    if ended {
        return Ok(());
    }
    match reader.byte()? {
        END => Ok(()),
        byte => Err(OrderedError::UnexpectedByte { byte }),
    }
}
