//! The description of one setting, and its part in `helenus.toml`.

use std::fmt;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// The unit of a number of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    BytesPerSecond,
    Milliseconds,
    Seconds,
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes a second",
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
        })
    }
}

/// The numbers that a setting may have.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    min: u64,
    max: Option<u64>,
    has_zero: bool,
    note: &'static str,
}

impl Range {
    pub const fn from_to(min: u64, max: u64) -> Self {
        Self { min, max: Some(max), has_zero: false, note: "" }
    }

    pub const fn at_least(min: u64) -> Self {
        Self { min, max: None, has_zero: false, note: "" }
    }

    /// Zero too, which stands for "no bound".
    pub const fn or_zero(self) -> Self {
        Self { has_zero: true, ..self }
    }

    /// What the largest number comes to.
    pub const fn that_is(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    pub fn contains(&self, number: u64) -> bool {
        (number == 0 && self.has_zero) || (number >= self.min && self.max.is_none_or(|max| number <= max))
    }

    /// `from 1 MiB to 1 GiB`, `at least 10`.
    pub fn describe(&self, unit: Option<Unit>) -> String {
        let zero = if self.has_zero { "0 or " } else { "" };
        let min = amount(self.min, unit);
        let range = match self.max {
            None => format!("at least {min}"),
            Some(max) => format!("from {min} to {}", amount(max, unit)),
        };
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        format!("{zero}{range}{note}")
    }
}

fn amount(number: u64, unit: Option<Unit>) -> String {
    if matches!(unit, Some(Unit::Bytes | Unit::BytesPerSecond)) {
        for (size, name) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
            if number >= size && number.is_multiple_of(size) {
                return format!("{} {name}", number / size);
            }
        }
    }
    number.to_string()
}

/// A name that Cassandra's configuration has for a setting.
#[derive(Debug, Clone, Copy)]
pub enum Alias {
    /// With the same values.
    Same(&'static str),
    /// Its number counts this many of the setting's units.
    Scaled(&'static str, u64),
    /// Of the port of an address; the rest of the address is that of the default.
    Port(&'static str),
    /// Whose value is a number of bytes with a unit: `10GiB`.
    Size(&'static str),
    /// Whose value is a length of time with a unit: `2000ms`. The setting counts milliseconds.
    Milliseconds(&'static str),
}

impl Alias {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Same(name)
            | Self::Scaled(name, _)
            | Self::Port(name)
            | Self::Size(name)
            | Self::Milliseconds(name) => name,
        }
    }
}

/// The bytes of a size as Cassandra's configuration writes it: a number with the unit B, KiB, MiB or GiB.
pub fn size_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("B", 1)];
    let (number, unit) =
        units.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?.trim_end(), *bytes)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The milliseconds of a length of time as Cassandra's configuration writes it: a number with the unit d, h, m, s or ms.
pub fn milliseconds(text: &str) -> Option<u64> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (number, unit) = units.iter().find_map(|(name, length)| Some((text.strip_suffix(name)?, *length)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A row of the table of settings.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub section: &'static str,
    pub key: &'static str,
    /// Lines, each with a blank before it.
    pub text: &'static [&'static str],
    pub unit: Option<Unit>,
    pub range: Option<Range>,
    pub cassandra: Option<Alias>,
    /// Flag and variable of the environment.
    pub flags: Option<&'static str>,
}

impl Setting {
    /// The first sentence of the text.
    pub fn summary(&self) -> String {
        let text = self.text.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let end = text.find(". ").map_or(text.len(), |end| end + 1);
        text[..end].trim_end_matches(['.', ':']).to_owned()
    }

    /// The setting in `helenus.toml`, commented out.
    pub fn sample(&self, value: &toml::Value) -> String {
        let mut lines: Vec<String> = self.text.iter().map(|line| format!("#{line}")).collect();
        let unit = self.unit.map(|unit| unit.to_string());
        let range = self.range.map(|range| range.describe(self.unit));
        let numbers: Vec<String> = unit.into_iter().chain(range).collect();
        if !numbers.is_empty() {
            let numbers = numbers.join(", ");
            lines.push(format!("# {}{}.", numbers[..1].to_uppercase(), &numbers[1..]));
        }
        match self.cassandra {
            None => {}
            Some(Alias::Same(name)) if name == self.key => {}
            Some(Alias::Same(name)) => lines.push(format!("# Cassandra's name: {name}.")),
            Some(Alias::Size(name)) => {
                lines.push(format!("# Cassandra's name: {name}, with a unit: \"10GiB\"."));
            }
            Some(Alias::Milliseconds(name)) => {
                lines.push(format!("# Cassandra's name: {name}, with a unit: \"2000ms\"."));
            }
            Some(Alias::Port(name)) => lines.push(format!("# Cassandra's name of the port alone: {name}.")),
            Some(Alias::Scaled(name, scale)) => {
                lines.push(format!("# Cassandra's name: {name}, in units of {}.", amount(scale, self.unit)));
            }
        }
        lines.extend(self.flags.map(|flags| format!("# Flag and variable: {flags}.")));
        lines.push(format!("# {} = {value}", self.key));
        lines.join("\n")
    }
}

/// A number, where a setting has one.
pub trait Amount {
    fn amount(&self) -> Option<u64>;
}

macro_rules! amounts {
    ($($type:ty)+) => {
        $(impl Amount for $type {
            fn amount(&self) -> Option<u64> {
                Some(*self as u64)
            }
        })+
    };
}

amounts!(u16 u32 u64 usize);

impl<T: Amount> Amount for Option<T> {
    fn amount(&self) -> Option<u64> {
        self.as_ref().and_then(Amount::amount)
    }
}
