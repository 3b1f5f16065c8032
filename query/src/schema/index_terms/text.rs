//! What an index does to texts before they become terms: the options `case_sensitive`, `normalize` and `ascii`.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use cql_lite::types::CqlType;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::schema::index::{Index, IndexKind};

/// The changes to a text. Two texts are equal for an index, and for a filter that it decides, if they are equal after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextAnalysis {
    /// Letters become lower case. Each by itself, so that the start of a text stays the start.
    lower_case: bool,
    /// Composed characters (Unicode's form NFC).
    normalize: bool,
    /// Letters with marks, ligatures and the like become letters of ASCII, where there are such.
    ascii: bool,
}

/// As `system_views.sai_column_indexes` of Cassandra has it.
impl Display for TextAnalysis {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { lower_case, normalize, ascii } = self;
        write!(
            formatter,
            "NonTokenizingAnalyzer{{caseSensitive={}, normalized={normalize}, ascii={ascii}}}",
            !lower_case
        )
    }
}

impl TextAnalysis {
    /// The changes that the options of an index ask for. `None`: there are none.
    pub(super) fn of(index: &Index, value_type: &CqlType) -> Option<Self> {
        if !matches!(value_type, CqlType::Text | CqlType::Ascii) {
            return None;
        }
        let is = |option: &str, value: &str| {
            index.options.get(option).is_some_and(|written| written.trim().eq_ignore_ascii_case(value))
        };
        let ignores_case = is("case_sensitive", "false");
        let analysis = match index.kind {
            IndexKind::Legacy => return None,
            IndexKind::StorageAttached => Self {
                lower_case: ignores_case,
                normalize: is("normalize", "true"),
                ascii: is("ascii", "true"),
            },
            // Upper case for all makes the same texts equal as lower case does.
            IndexKind::Sasi => Self {
                lower_case: ignores_case
                    || is("normalize_lowercase", "true")
                    || is("normalize_uppercase", "true"),
                normalize: false,
                ascii: false,
            },
        };
        (analysis.lower_case || analysis.normalize || analysis.ascii).then_some(analysis)
    }

    /// The changes in a form that is the same in all releases.
    pub(super) fn canonical(self) -> [u8; 3] {
        [u8::from(self.lower_case), u8::from(self.normalize), u8::from(self.ascii)]
    }

    /// The text after the changes. Bytes that are no text stay as they are.
    pub fn apply<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let Ok(text) = std::str::from_utf8(text) else { return Cow::Borrowed(text) };
        let mut changed = Cow::Borrowed(text);
        if self.lower_case {
            changed = Cow::Owned(changed.chars().flat_map(char::to_lowercase).collect());
        }
        if self.normalize {
            changed = Cow::Owned(changed.nfc().collect());
        }
        if self.ascii && !changed.is_ascii() {
            changed = Cow::Owned(in_ascii(&changed));
        }
        match changed {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// Each character in ASCII, where that is possible. Marks are left out, also those that are characters of their own.
fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let parts = || std::iter::once(character).nfkd().filter(|part| !is_combining_mark(*part));
        if !parts().all(|part| part.is_ascii() || letters_of(part).is_some()) {
            out.push(character);
            continue;
        }
        for part in parts() {
            match letters_of(part) {
                Some(letters) => out.push_str(letters),
                None => out.push(part),
            }
        }
    }
    out
}

/// Letters and signs that Unicode does not take apart.
fn letters_of(character: char) -> Option<&'static str> {
    Some(match character {
        'ß' => "ss",
        'ẞ' => "SS",
        'Æ' => "AE",
        'æ' => "ae",
        'Œ' => "OE",
        'œ' => "oe",
        'Ø' => "O",
        'ø' => "o",
        'Đ' | 'Ð' => "D",
        'đ' | 'ð' => "d",
        'Ł' => "L",
        'ł' => "l",
        'Þ' => "TH",
        'þ' => "th",
        'Ħ' => "H",
        'ħ' => "h",
        'ı' => "i",
        'Ŧ' => "T",
        'ŧ' => "t",
        'Ŋ' => "N",
        'ŋ' => "n",
        '‘' | '’' | '‚' | '‛' | '′' => "'",
        '“' | '”' | '„' | '‟' | '″' | '«' | '»' => "\"",
        '‐' | '‑' | '‒' | '–' | '—' | '−' => "-",
        _ => return None,
    })
}
