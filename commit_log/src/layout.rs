//! How a segment is laid out, which differs between the versions of the format.

use super::format::{self, GroupHeader, Salt};
use super::version_1;

/// The layout of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Version1,
    Version2 { salt: Salt },
}

/// Why a segment's file is not as the log has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit {
    pub reason: &'static str,
    /// The offset from which the file differs from what was written, in bytes.
    pub offset: u64,
    /// The layout for reading what is left of the file; `None`: nothing of it can be read.
    pub layout: Option<Layout>,
}

impl Layout {
    /// The layout of the file of `segment` with these contents. `has_headers`: the log was written by version 2, so a segment without
    /// a header begins with a group of version 1, or is damaged.
    pub fn of(bytes: &[u8], segment: u64, has_headers: bool) -> Result<Self, Misfit> {
        let Some(header) = format::open_segment(bytes) else {
            if version_1::open(bytes, segment).is_some() || !has_headers {
                return Ok(Self::Version1);
            }
            let reason = "the header of the segment is damaged or gone";
            return Err(Misfit { reason, offset: 0, layout: None });
        };
        if header.segment != segment {
            return Err(Misfit { reason: "the file is another segment", offset: 0, layout: None });
        }
        let layout = Self::Version2 { salt: header.salt };
        let length = bytes.len() as u64;
        if length < header.length {
            let reason = "the file is shorter than it was";
            return Err(Misfit { reason, offset: length, layout: Some(layout) });
        }
        Ok(layout)
    }

    /// Where the first group of a segment begins.
    pub fn first_group(self) -> usize {
        match self {
            Self::Version1 => 0,
            Self::Version2 { .. } => format::SEGMENT_HEADER_BYTES,
        }
    }

    /// Bytes of a group before its payload.
    pub fn group_header_bytes(self) -> usize {
        match self {
            Self::Version1 => version_1::GROUP_HEADER_BYTES,
            Self::Version2 { .. } => format::GROUP_HEADER_BYTES,
        }
    }

    /// The header of the group at the start of `bytes`, if the group is complete and belongs to `segment`.
    pub fn open_group(self, bytes: &[u8], segment: u64) -> Option<GroupHeader> {
        match self {
            Self::Version1 => version_1::open(bytes, segment),
            Self::Version2 { salt } => format::open(bytes, segment, salt),
        }
    }
}
