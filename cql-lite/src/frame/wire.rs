//! The primitive notations of the protocol (`[string]`, `[bytes]`, `[inet]`, …): a bounds-checked reader of a slice, and
//! functions that append to a buffer. All numbers are big endian.

use std::net::{IpAddr, SocketAddr};

use bytes::{BufMut, BytesMut};

use super::error::DecodeError;

/// Maximum length of a `[string]`. Longer text is truncated at a character boundary when written.
const STRING_BYTES_MAX: usize = u16::MAX as usize;

/// A [bytes map]: keys and values, in the order they were sent.
pub type BytesMap<'a> = Vec<(&'a str, Option<&'a [u8]>)>;

/// Reads from the front of a slice with bounds checks. `what` names the field in errors.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    remaining: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { remaining: bytes }
    }

    /// The unread bytes.
    pub fn remaining(&self) -> &'a [u8] {
        self.remaining
    }

    /// The next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.remaining.split_at_checked(length) {
            Some((taken, rest)) => {
                self.remaining = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated { what, needed: length, remaining: self.remaining.len() }),
        }
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        match self.remaining.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.remaining = rest;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated { what, needed: N, remaining: self.remaining.len() }),
        }
    }

    /// `[byte]`
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// `[short]`
    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// [unsigned int]
    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// `[int]`
    #[inline]
    pub fn i32(&mut self, what: &'static str) -> Result<i32, DecodeError> {
        self.array(what).map(i32::from_be_bytes)
    }

    /// `[long]`
    #[inline]
    pub fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        self.array(what).map(i64::from_be_bytes)
    }

    /// A length of `[int]` that must not be negative.
    pub fn length(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let length = self.i32(what)?;
        usize::try_from(length).map_err(|_| DecodeError::InvalidLength { what, length: i64::from(length) })
    }

    /// `[string]`
    #[inline]
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let bytes = self.short_bytes(what)?;
        str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8 { what })
    }

    /// [long string]
    #[inline]
    pub(crate) fn long_string(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let length = self.length(what)?;
        str::from_utf8(self.take(length, what)?).map_err(|_| DecodeError::InvalidUtf8 { what })
    }

    /// `[short bytes]`
    #[inline]
    pub(crate) fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.u16(what)?;
        self.take(usize::from(length), what)
    }

    /// `[bytes]`; any negative length is null.
    #[inline]
    pub fn bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        match usize::try_from(self.i32(what)?) {
            Ok(length) => self.take(length, what).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// [string list]
    pub(crate) fn string_list(&mut self, what: &'static str) -> Result<Vec<&'a str>, DecodeError> {
        let count = usize::from(self.u16(what)?);
        self.repeat(count, 2, |reader| reader.string(what))
    }

    /// `[string map]`
    pub(crate) fn string_map(&mut self, what: &'static str) -> Result<Vec<(&'a str, &'a str)>, DecodeError> {
        let count = usize::from(self.u16(what)?);
        self.repeat(count, 4, |reader| Ok((reader.string(what)?, reader.string(what)?)))
    }

    /// [string multimap]
    pub(crate) fn string_multimap(
        &mut self,
        what: &'static str,
    ) -> Result<Vec<(&'a str, Vec<&'a str>)>, DecodeError> {
        let count = usize::from(self.u16(what)?);
        self.repeat(count, 4, |reader| Ok((reader.string(what)?, reader.string_list(what)?)))
    }

    /// [bytes map]
    pub(crate) fn bytes_map(&mut self, what: &'static str) -> Result<BytesMap<'a>, DecodeError> {
        let count = usize::from(self.u16(what)?);
        self.repeat(count, 6, |reader| Ok((reader.string(what)?, reader.bytes(what)?)))
    }

    /// `[inetaddr]`
    pub(crate) fn inet_address(&mut self, what: &'static str) -> Result<IpAddr, DecodeError> {
        match self.u8(what)? {
            4 => Ok(IpAddr::from(self.array::<4>(what)?)),
            16 => Ok(IpAddr::from(self.array::<16>(what)?)),
            length => Err(DecodeError::InvalidLength { what, length: i64::from(length) }),
        }
    }

    /// `[inet]`
    pub fn inet(&mut self, what: &'static str) -> Result<SocketAddr, DecodeError> {
        let address = self.inet_address(what)?;
        let port = self.i32(what)?;
        let port = u16::try_from(port)
            .map_err(|_| DecodeError::InvalidLength { what: "a port", length: i64::from(port) })?;
        Ok(SocketAddr::new(address, port))
    }

    /// Reads `count` items of at least `item_bytes_min` bytes each. The count is not trusted: memory is reserved only for
    /// as many items as the rest of the body can contain.
    pub fn repeat<T>(
        &mut self,
        count: usize,
        item_bytes_min: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut items = Vec::with_capacity(count.min(self.remaining.len() / item_bytes_min.max(1)));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }
}

/// Appends a `[string]`. Text longer than 65,535 bytes is truncated at a character boundary.
pub(crate) fn put_string(out: &mut BytesMut, text: &str) {
    let (text, _) = text.split_at(text.floor_char_boundary(STRING_BYTES_MAX));
    out.put_u16(text.len() as u16);
    out.put_slice(text.as_bytes());
}

/// Appends a [long string].
pub(crate) fn put_long_string(out: &mut BytesMut, text: &str) {
    debug_assert!(i32::try_from(text.len()).is_ok(), "a text of 2 GiB");
    out.put_i32(text.len() as i32);
    out.put_slice(text.as_bytes());
}

/// Appends a `[bytes]`.
#[inline]
pub fn put_bytes(out: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            debug_assert!(i32::try_from(bytes.len()).is_ok(), "a value of 2 GiB");
            out.reserve(4 + bytes.len());
            out.put_i32(bytes.len() as i32);
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

/// Appends a `[short bytes]`, truncated to 65,535 bytes. Ids and digests are shorter.
pub(crate) fn put_short_bytes(out: &mut BytesMut, bytes: &[u8]) {
    let bytes = bytes.get(..STRING_BYTES_MAX).unwrap_or(bytes);
    out.put_u16(bytes.len() as u16);
    out.put_slice(bytes);
}

/// Appends a [string list], truncated to 65,535 entries like every list and map here.
pub(crate) fn put_string_list<S: AsRef<str>>(out: &mut BytesMut, texts: &[S]) {
    for text in counted(out, texts) {
        put_string(out, text.as_ref());
    }
}

/// Appends a `[string map]`.
pub(crate) fn put_string_map<S: AsRef<str>>(out: &mut BytesMut, entries: &[(S, S)]) {
    for (key, value) in counted(out, entries) {
        put_string(out, key.as_ref());
        put_string(out, value.as_ref());
    }
}

/// Appends a [bytes map].
pub(crate) fn put_bytes_map<S: AsRef<str>, B: AsRef<[u8]>>(out: &mut BytesMut, entries: &[(S, Option<B>)]) {
    for (key, value) in counted(out, entries) {
        put_string(out, key.as_ref());
        put_bytes(out, value.as_ref().map(AsRef::as_ref));
    }
}

/// Appends the number of entries as a `[short]` and returns the entries, truncated to 65,535.
pub(super) fn counted<'e, T>(out: &mut BytesMut, entries: &'e [T]) -> &'e [T] {
    let entries = entries.get(..usize::from(u16::MAX)).unwrap_or(entries);
    out.put_u16(entries.len() as u16);
    entries
}

/// Appends an `[inetaddr]`.
pub(crate) fn put_inet_address(out: &mut BytesMut, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(16);
            out.put_slice(&address.octets());
        }
    }
}

/// Appends an `[inet]`.
pub(crate) fn put_inet(out: &mut BytesMut, address: SocketAddr) {
    put_inet_address(out, address.ip());
    out.put_i32(i32::from(address.port()));
}
