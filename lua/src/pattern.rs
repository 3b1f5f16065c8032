//! Lua's patterns, with counted work: `string.find` and its siblings of the C library can run for hours in one call, which nothing
//! interrupts.
//!
//! Patterns, captures and messages are those of Lua 5.4 (section 6.4.1 of its manual).

use mlua::{Error, Result};

use crate::budget::{Budget, INSTRUCTIONS_PER_STEP};

const CAPTURES_MAX: usize = 32;
/// How deep the matcher may call itself.
const DEPTH_MAX: usize = 200;
const ESCAPE: u8 = b'%';

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// `(` without its `)` so far.
    Open,
    /// `()`: a position.
    Position,
    Bytes(usize),
}

/// What a pattern has captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// A range of the text.
    Range(usize, usize),
    /// A position in the text, from 1.
    Position(usize),
}

/// A match in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub start: usize,
    pub end: usize,
    pub captures: Vec<Capture>,
}

impl Found {
    /// The captures, or the whole match if the pattern has none.
    pub fn values(&self) -> Vec<Capture> {
        if self.captures.is_empty() {
            vec![Capture::Range(self.start, self.end)]
        } else {
            self.captures.clone()
        }
    }
}

/// Finds the first match at `from` or behind it. A pattern that begins with `^` matches only there.
pub fn find(text: &[u8], pattern: &[u8], from: usize, budget: &Budget) -> Result<Option<Found>> {
    let (pattern, is_anchored) = match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    find_at(text, pattern, from, is_anchored, budget)
}

/// Like [`find`], where `^` has no meaning of its own.
pub fn find_at(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    is_anchored: bool,
    budget: &Budget,
) -> Result<Option<Found>> {
    let mut matcher = Matcher { text, pattern, captures: Vec::new(), depth: 0, operations: 0, budget };
    for start in from..=text.len() {
        matcher.captures.clear();
        if let Some(end) = matcher.matches(start, 0)? {
            return Ok(Some(Found { start, end, captures: matcher.captured()? }));
        }
        if is_anchored {
            break;
        }
    }
    Ok(None)
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<(usize, Length)>,
    depth: usize,
    operations: u32,
    budget: &'a Budget,
}

impl Matcher<'_> {
    fn captured(&self) -> Result<Vec<Capture>> {
        let captures = self.captures.iter().map(|&(start, length)| match length {
            Length::Open => Err(Error::runtime("unfinished capture")),
            Length::Position => Ok(Capture::Position(start + 1)),
            Length::Bytes(bytes) => Ok(Capture::Range(start, start + bytes)),
        });
        captures.collect()
    }

    fn count(&mut self) -> Result<()> {
        self.operations += 1;
        if self.operations >= INSTRUCTIONS_PER_STEP {
            self.operations = 0;
            self.budget.spend(1)?;
        }
        Ok(())
    }

    /// The end of the match of the rest of the pattern with the text from `at` on.
    fn matches(&mut self, at: usize, pattern_at: usize) -> Result<Option<usize>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::runtime("pattern too complex"));
        }
        let result = self.match_rest(at, pattern_at);
        self.depth -= 1;
        result
    }

    fn match_rest(&mut self, mut at: usize, mut pattern_at: usize) -> Result<Option<usize>> {
        loop {
            self.count()?;
            let Some(&first) = self.pattern.get(pattern_at) else { return Ok(Some(at)) };
            let next = self.pattern.get(pattern_at + 1).copied();
            match (first, next) {
                (b'(', Some(b')')) => return self.open_capture(at, pattern_at + 2, Length::Position),
                (b'(', _) => return self.open_capture(at, pattern_at + 1, Length::Open),
                (b')', _) => return self.close_capture(at, pattern_at + 1),
                (b'$', None) => return Ok((at == self.text.len()).then_some(at)),
                (ESCAPE, Some(b'b')) => match self.balanced(at, pattern_at + 2)? {
                    Some(end) => {
                        at = end;
                        pattern_at += 4;
                        continue;
                    }
                    None => return Ok(None),
                },
                (ESCAPE, Some(b'f')) => {
                    pattern_at += 2;
                    if self.pattern.get(pattern_at) != Some(&b'[') {
                        return Err(Error::runtime("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(pattern_at)?;
                    let before = at.checked_sub(1).and_then(|before| self.text.get(before)).copied();
                    let present = self.text.get(at).copied().unwrap_or(0);
                    if self.is_in_set(before.unwrap_or(0), pattern_at, end)
                        || !self.is_in_set(present, pattern_at, end)
                    {
                        return Ok(None);
                    }
                    pattern_at = end;
                    continue;
                }
                (ESCAPE, Some(digit @ b'0'..=b'9')) => match self.back_reference(at, digit)? {
                    Some(end) => {
                        at = end;
                        pattern_at += 2;
                        continue;
                    }
                    None => return Ok(None),
                },
                _ => {}
            }
            let end = self.class_end(pattern_at)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if self.is_single(at, pattern_at, end)
                        && let Some(found) = self.matches(at + 1, end + 1)?
                    {
                        return Ok(Some(found));
                    }
                    pattern_at = end + 1;
                }
                Some(b'+') if !self.is_single(at, pattern_at, end) => return Ok(None),
                Some(b'+') => return self.expand_most(at, 1, pattern_at, end),
                Some(b'*') => return self.expand_most(at, 0, pattern_at, end),
                Some(b'-') => return self.expand_least(at, pattern_at, end),
                _ => {
                    if !self.is_single(at, pattern_at, end) {
                        return Ok(None);
                    }
                    at += 1;
                    pattern_at = end;
                }
            }
        }
    }

    /// Matches the longest repetition behind which the rest matches, of `least` characters or more.
    fn expand_most(
        &mut self,
        at: usize,
        least: usize,
        pattern_at: usize,
        end: usize,
    ) -> Result<Option<usize>> {
        let mut count = 0;
        while self.is_single(at + count, pattern_at, end) {
            count += 1;
            self.count()?;
        }
        loop {
            if let Some(found) = self.matches(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count <= least {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// As few as possible.
    fn expand_least(&mut self, mut at: usize, pattern_at: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(found) = self.matches(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(at, pattern_at, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open_capture(&mut self, at: usize, pattern_at: usize, length: Length) -> Result<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Error::runtime("too many captures"));
        }
        self.captures.push((at, length));
        let count = self.captures.len();
        let found = self.matches(at, pattern_at)?;
        if found.is_none() {
            self.captures.truncate(count - 1);
        }
        Ok(found)
    }

    fn close_capture(&mut self, at: usize, pattern_at: usize) -> Result<Option<usize>> {
        let open = self.captures.iter().rposition(|(_, length)| *length == Length::Open);
        let Some(index) = open else { return Err(Error::runtime("invalid pattern capture")) };
        self.captures[index].1 = Length::Bytes(at - self.captures[index].0);
        let found = self.matches(at, pattern_at)?;
        if found.is_none() {
            self.captures[index].1 = Length::Open;
        }
        Ok(found)
    }

    /// `%bxy`
    fn balanced(&mut self, at: usize, pattern_at: usize) -> Result<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pattern.get(pattern_at), self.pattern.get(pattern_at + 1))
        else {
            return Err(Error::runtime("malformed pattern (missing arguments to '%b')"));
        };
        if self.text.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (offset, &byte) in self.text[at + 1..].iter().enumerate() {
            self.count()?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + offset + 2));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, at: usize, digit: u8) -> Result<Option<usize>> {
        let index = usize::from(digit - b'0');
        let capture = index.checked_sub(1).and_then(|index| self.captures.get(index));
        let Some(&(start, Length::Bytes(bytes))) = capture else {
            return Err(Error::runtime(format!("invalid capture index %{index} in pattern")));
        };
        self.budget.spend_bytes(bytes)?;
        let is_same = self.text[at..].starts_with(&self.text[start..start + bytes]);
        Ok(is_same.then_some(at + bytes))
    }

    /// The end of the single character or class at a place of the pattern.
    fn class_end(&self, pattern_at: usize) -> Result<usize> {
        match self.pattern.get(pattern_at) {
            Some(&ESCAPE) if pattern_at + 1 >= self.pattern.len() => {
                Err(Error::runtime("malformed pattern (ends with '%')"))
            }
            Some(&ESCAPE) => Ok(pattern_at + 2),
            Some(b'[') => {
                let mut end = pattern_at + 1;
                if self.pattern.get(end) == Some(&b'^') {
                    end += 1;
                }
                // A `]` that comes first is a character of the set.
                let first = end;
                loop {
                    match self.pattern.get(end) {
                        None => return Err(Error::runtime("malformed pattern (missing ']')")),
                        Some(b']') if end > first => return Ok(end + 1),
                        Some(&ESCAPE) => end += 2,
                        Some(_) => end += 1,
                    }
                }
            }
            _ => Ok(pattern_at + 1),
        }
    }

    fn is_single(&self, at: usize, pattern_at: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(at) else { return false };
        match self.pattern[pattern_at] {
            b'.' => true,
            ESCAPE => is_in_class(byte, self.pattern[pattern_at + 1]),
            b'[' => self.is_in_set(byte, pattern_at, end),
            other => other == byte,
        }
    }

    /// Whether a byte is in the set between `[` at a place of the pattern and its end.
    fn is_in_set(&self, byte: u8, pattern_at: usize, end: usize) -> bool {
        let mut set = &self.pattern[pattern_at + 1..end - 1];
        let is_negated = set.first() == Some(&b'^');
        if is_negated {
            set = &set[1..];
        }
        loop {
            match *set {
                [] => return is_negated,
                [ESCAPE, class, ref rest @ ..] => {
                    if is_in_class(byte, class) {
                        return !is_negated;
                    }
                    set = rest;
                }
                [low, b'-', high, ref rest @ ..] => {
                    if (low..=high).contains(&byte) {
                        return !is_negated;
                    }
                    set = rest;
                }
                [single, ref rest @ ..] => {
                    if single == byte {
                        return !is_negated;
                    }
                    set = rest;
                }
            }
        }
    }
}

fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}
