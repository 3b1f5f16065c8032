//! The names in a table's directory. `files` says what they mean together.

const SUFFIX: &str = "-data.sst";
const TEMPORARY_SUFFIX: &str = "-data.sst.tmp";

/// The name of a table file.
pub(super) fn file_name(generation: u64) -> String {
    format!("{generation:010}{SUFFIX}")
}

/// The name of a table file that is being written.
pub(super) fn temporary_name(generation: u64) -> String {
    format!("{generation:010}{TEMPORARY_SUFFIX}")
}

/// The meaning of a name in a table's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    File(u64),
    Temporary(u64),
}

impl Name {
    /// `None`: no name that a shard gives.
    pub fn parse(name: &str) -> Option<Self> {
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
            Self::File(generation) | Self::Temporary(generation) => generation,
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
