//! The names in a table's directory. `files` says what they mean together.

use crate::secondary_index::IndexId;

const SUFFIX: &str = "-data.sst";
const TEMPORARY_SUFFIX: &str = "-data.sst.tmp";
const INDEX_SUFFIX: &str = ".index";
const TEMPORARY_INDEX_SUFFIX: &str = ".index.tmp";

/// The name of a table file.
pub(super) fn file_name(generation: u64) -> String {
    format!("{generation:010}{SUFFIX}")
}

/// The name of a table file that is being written.
pub(super) fn temporary_name(generation: u64) -> String {
    format!("{generation:010}{TEMPORARY_SUFFIX}")
}

/// The name of the index of a table file.
pub(super) fn index_name(generation: u64, index: IndexId) -> String {
    format!("{generation:010}-{index}{INDEX_SUFFIX}")
}

/// The meaning of a name in a table's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    File(u64),
    Temporary(u64),
    /// The index of a file.
    Index {
        generation: u64,
        index: IndexId,
    },
    /// An index of a file, or a part of it, that is being written.
    TemporaryIndex(u64),
}

impl Name {
    /// `None`: no name that a shard gives.
    pub fn parse(name: &str) -> Option<Self> {
        Self::parse_index(name).or_else(|| Self::parse_file(name))
    }

    fn parse_index(name: &str) -> Option<Self> {
        let (of_index, is_temporary) = match name.split_once(TEMPORARY_INDEX_SUFFIX) {
            // A part has a number.
            Some((of_index, part)) => {
                let number = part.strip_prefix('.').map(str::parse::<u32>);
                let is_name = part.is_empty() || matches!(number, Some(Ok(_)));
                (Some(of_index).filter(|_| is_name)?, true)
            }
            None => (name.strip_suffix(INDEX_SUFFIX)?, false),
        };
        let (digits, index) = of_index.split_once('-')?;
        let (generation, index) = (digits.parse().ok()?, IndexId::parse(index)?);
        if index_name(generation, index).strip_suffix(INDEX_SUFFIX) != Some(of_index) {
            return None;
        }
        Some(if is_temporary { Self::TemporaryIndex(generation) } else { Self::Index { generation, index } })
    }

    fn parse_file(name: &str) -> Option<Self> {
        let (digits, is_temporary) = match name.strip_suffix(TEMPORARY_SUFFIX) {
            Some(digits) => (digits, true),
            None => (name.strip_suffix(SUFFIX)?, false),
        };
        let generation = digits.parse().ok()?;
        let (parsed, written) = if is_temporary {
            (Self::Temporary(generation), temporary_name(generation))
        } else {
            (Self::File(generation), file_name(generation))
        };
        (written == name).then_some(parsed)
    }

    pub fn generation(self) -> u64 {
        match self {
            Self::File(generation)
            | Self::Temporary(generation)
            | Self::TemporaryIndex(generation)
            | Self::Index { generation, .. } => generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for generation in [1, 12_345_678_901, u64::MAX] {
            assert_eq!(Name::parse(&file_name(generation)), Some(Name::File(generation)));
            assert_eq!(Name::parse(&temporary_name(generation)), Some(Name::Temporary(generation)));
        }
        let index = IndexId([0xAB; 16]);
        let name = index_name(7, index);
        assert_eq!(name, format!("0000000007-{}.index", "ab".repeat(16)));
        assert_eq!(Name::parse(&name), Some(Name::Index { generation: 7, index }));
        for suffix in [".tmp", ".tmp.0", ".tmp.12"] {
            assert_eq!(Name::parse(&format!("{name}{suffix}")), Some(Name::TemporaryIndex(7)));
        }
        for suffix in [".bak", ".tmp.x", ".tmp."] {
            assert_eq!(Name::parse(&format!("{name}{suffix}")), None);
        }
        for other in [
            "1-data.sst",
            "+000000001-data.sst",
            "0000000001-data.sst.bak",
            "0000000001",
            "-data.sst",
            "lock",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
