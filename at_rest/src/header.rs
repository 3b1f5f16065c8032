//! The first bytes of an encrypted file: which master key opens it, and its own key, wrapped by that.
//!
//! ```text
//! header area := 4,096 bytes: header at 0, zeros, the same header at 2,048, zeros
//! header      := offset  0  magic        16 bytes  "helenus-at-rest\0"
//!                       16  version      u16       1
//!                       18  cipher       u16       1: AES-256-GCM
//!                       20  length       u8        of the name of the master key
//!                       21  zero         3 bytes
//!                       24  name         64 bytes  of the master key, then zeros
//!                       88  salt         32 bytes  random
//!                      120  file's key   32 bytes  encrypted
//!                      152  tag          16 bytes
//!                      168  crc32        u32       (IEEE) of all bytes before
//! ```
//! All integers little endian. The file's key is encrypted with AES-256-GCM under HMAC-SHA-256(master key, "helenus at rest: wrap" | salt),
//! with a nonce of zeros and the bytes before it as associated data. The salt is drawn for each header: a file that gets another master key gets
//! another salt, too.

use helenus_io::invariant::BrokenInvariant;
use helenus_io::{broken, invariant};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

use crate::error::KeyError;
use crate::keys::{KEY_BYTES, MasterKey, MasterKeys, NAME_BYTES_MAX, Secret};

/// Bytes of a file before its frames.
pub(crate) const HEADER_AREA_BYTES: usize = 4096;
/// Where the copies of the header are.
pub(crate) const COPIES: [usize; 2] = [0, 2048];
/// Bytes of a copy with the zeros behind it.
pub(crate) const COPY_BYTES: usize = 2048;
const MAGIC: &[u8; 16] = b"helenus-at-rest\0";
const VERSION: u16 = 1;
const AES_256_GCM_CIPHER: u16 = 1;
const NAME_AT: usize = 24;
const SALT_AT: usize = NAME_AT + NAME_BYTES_MAX;
const KEY_AT: usize = SALT_AT + SALT_BYTES;
const TAG_AT: usize = KEY_AT + KEY_BYTES;
const CHECKSUM_AT: usize = TAG_AT + TAG_BYTES;
const HEADER_BYTES: usize = CHECKSUM_AT + 4;
pub(crate) const SALT_BYTES: usize = 32;
pub(crate) const TAG_BYTES: usize = 16;
const _: () = assert!(HEADER_BYTES <= 512 && COPIES[1] + COPY_BYTES == HEADER_AREA_BYTES);

/// What a file begins with.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// It has nothing but zeros where a header would be: it is empty, or was made and never synced.
    Unwritten,
    /// It is no encrypted file.
    Plain,
    /// It was one, but neither copy of its header is whole.
    Damaged,
    Encrypted(Header),
}

/// A whole header.
#[derive(Debug)]
pub(crate) struct Header {
    bytes: [u8; HEADER_BYTES],
}

/// A key that ring uses for AES-256-GCM.
pub(crate) fn cipher(key: &[u8; KEY_BYTES]) -> Result<LessSafeKey, BrokenInvariant> {
    let key = UnboundKey::new(&AES_256_GCM, key);
    key.map(LessSafeKey::new).map_err(|_| broken!("32 bytes are a key of AES-256"))
}

/// A key that is derived from another one, for one purpose and one value.
pub(crate) fn derive(key: &Secret, purpose: &[u8], value: &[u8]) -> Secret {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key.as_slice()));
    context.update(purpose);
    context.update(value);
    let mut derived = Zeroizing::new([0; KEY_BYTES]);
    derived.copy_from_slice(context.sign().as_ref());
    derived
}

fn wrapping(master: &MasterKey, salt: &[u8]) -> Result<LessSafeKey, BrokenInvariant> {
    cipher(&derive(&master.secret, b"helenus at rest: wrap", salt))
}

fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// The header area of a new file.
pub(crate) fn area(
    master: &MasterKey,
    file_key: &Secret,
    salt: &[u8; SALT_BYTES],
) -> Result<Vec<u8>, BrokenInvariant> {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(MAGIC);
    header[16..18].copy_from_slice(&VERSION.to_le_bytes());
    header[18..20].copy_from_slice(&AES_256_GCM_CIPHER.to_le_bytes());
    invariant!(master.id.len() <= NAME_BYTES_MAX, "the name of a master key fits into a header");
    header[20] = master.id.len() as u8;
    header[NAME_AT..NAME_AT + master.id.len()].copy_from_slice(master.id.as_bytes());
    header[SALT_AT..KEY_AT].copy_from_slice(salt);
    let mut wrapped = *file_key.clone();
    let additional = Aad::from(&header[..KEY_AT]);
    let tag = wrapping(master, salt)?
        .seal_in_place_separate_tag(zero_nonce(), additional, &mut wrapped)
        .map_err(|_| broken!("a key is short enough to be encrypted"))?;
    header[KEY_AT..TAG_AT].copy_from_slice(&wrapped);
    header[TAG_AT..CHECKSUM_AT].copy_from_slice(tag.as_ref());
    let checksum = crc32fast::hash(&header[..CHECKSUM_AT]);
    header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    let mut area = vec![0; HEADER_AREA_BYTES];
    for at in COPIES {
        area[at..at + HEADER_BYTES].copy_from_slice(&header);
    }
    Ok(area)
}

impl Beginning {
    /// `bytes`: the file's header area, or the whole file if it is shorter.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut is_damaged = false;
        for at in COPIES {
            let copy = bytes.get(at..).unwrap_or_default();
            if !copy.starts_with(MAGIC) {
                continue;
            }
            is_damaged = true;
            if let Some(header) = copy.first_chunk::<HEADER_BYTES>()
                && crc32fast::hash(&header[..CHECKSUM_AT]).to_le_bytes() == header[CHECKSUM_AT..]
            {
                return Self::Encrypted(Header { bytes: *header });
            }
        }
        match is_damaged {
            true => Self::Damaged,
            false if bytes.iter().all(|byte| *byte == 0) => Self::Unwritten,
            false => Self::Plain,
        }
    }
}

impl Header {
    fn number(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The name of the master key.
    pub(crate) fn key_id(&self) -> String {
        let length = usize::from(self.bytes[20]).min(NAME_BYTES_MAX);
        String::from_utf8_lossy(&self.bytes[NAME_AT..NAME_AT + length]).into_owned()
    }

    /// The file's own key.
    pub(crate) fn unwrap_key(&self, keys: &MasterKeys) -> Result<Secret, KeyError> {
        let version = self.number(16);
        if version != VERSION || self.number(18) != AES_256_GCM_CIPHER {
            return Err(KeyError::Version { version });
        }
        let id = self.key_id();
        let Some(master) = keys.find(&id) else { return Err(KeyError::Unknown { id }) };
        let mut wrapped = Zeroizing::new([0; KEY_BYTES + TAG_BYTES]);
        wrapped.copy_from_slice(&self.bytes[KEY_AT..CHECKSUM_AT]);
        let additional = Aad::from(&self.bytes[..KEY_AT]);
        let wrapping = wrapping(&master, &self.bytes[SALT_AT..KEY_AT])?;
        let opened = wrapping.open_in_place(zero_nonce(), additional, wrapped.as_mut_slice()).ok();
        match opened.and_then(|key| key.first_chunk::<KEY_BYTES>()) {
            Some(key) => Ok(Zeroizing::new(*key)),
            None => Err(KeyError::Wrong { id }),
        }
    }
}
