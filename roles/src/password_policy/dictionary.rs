//! Words that are no passwords.

use std::ops::Range;

/// The lines of a file, in its text: there may be millions of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Dictionary {
    text: String,
    /// In the order of the words.
    words: Vec<Range<u32>>,
}

impl Dictionary {
    /// `text`: less than 4 GiB.
    pub(super) fn new(text: String) -> Self {
        let start = text.as_ptr() as usize;
        let range = |word: &str| {
            let from = (word.as_ptr() as usize - start) as u32;
            from..from + word.len() as u32
        };
        let mut lines: Vec<&str> = text.lines().filter(|word| !word.is_empty()).collect();
        lines.sort_unstable();
        let words = lines.into_iter().map(range).collect();
        Self { text, words }
    }

    pub(super) fn contains(&self, password: &str) -> bool {
        let word = |range: &Range<u32>| &self.text[range.start as usize..range.end as usize];
        self.words.binary_search_by(|range| word(range).cmp(password)).is_ok()
    }
}
