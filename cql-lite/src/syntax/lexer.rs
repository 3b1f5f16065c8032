//! The lexer: splits a statement into tokens.
//!
//! A token is a kind and a range of bytes. The longest token at a position is taken. A number can start with `-`: `a -1`
//! is two tokens, `a` and `-1`; `a - 1` is three. Lines are counted only for errors.

use super::{
    error::{Position, SyntaxError},
    keyword::Keyword,
};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An unquoted name that is not a keyword.
    Word,
    /// A keyword, in any letter case.
    Keyword(Keyword),
    /// `"name"`
    QuotedName,
    /// `'text'`
    String,
    /// `$$text$$`
    DollarString,
    /// `-12`
    Integer,
    /// `-1.2e3`
    Float,
    /// `-1h30m`, `P1DT2H`
    Duration,
    /// `123e4567-e89b-12d3-a456-426614174000`
    Uuid,
    /// `0xcafe`
    Blob,
    /// `-NaN`
    NegativeNan,
    /// `-Infinity`
    NegativeInfinity,
    /// An operator or a punctuation mark.
    Symbol(Symbol),
    /// The end of the text.
    End,
}

/// Operators and punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    LeftParenthesis,
    RightParenthesis,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    Comma,
    Semicolon,
    Colon,
    Dot,
    Range,
    Question,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    PlusEqual,
    MinusEqual,
}

impl Symbol {
    /// The symbol as written.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Symbol::LeftParenthesis => "(",
            Symbol::RightParenthesis => ")",
            Symbol::LeftBracket => "[",
            Symbol::RightBracket => "]",
            Symbol::LeftBrace => "{",
            Symbol::RightBrace => "}",
            Symbol::Comma => ",",
            Symbol::Semicolon => ";",
            Symbol::Colon => ":",
            Symbol::Dot => ".",
            Symbol::Range => "..",
            Symbol::Question => "?",
            Symbol::Equal => "=",
            Symbol::NotEqual => "!=",
            Symbol::Less => "<",
            Symbol::LessOrEqual => "<=",
            Symbol::Greater => ">",
            Symbol::GreaterOrEqual => ">=",
            Symbol::Plus => "+",
            Symbol::Minus => "-",
            Symbol::Star => "*",
            Symbol::Slash => "/",
            Symbol::Percent => "%",
            Symbol::PlusEqual => "+=",
            Symbol::MinusEqual => "-=",
        }
    }
}

/// A token: its kind and its half-open range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Token {
    /// The range of bytes of the token.
    pub(crate) fn span(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The tokens of a text, ending with [`TokenKind::End`]. Comments and white space are skipped.
pub(crate) fn tokenize(text: &str) -> Result<Vec<Token>, SyntaxError> {
    if u32::try_from(text.len()).is_err() {
        return Err(SyntaxError::Rule("The statement is longer than 4 GiB".into()));
    }
    // A token and the space after it are rarely shorter than four bytes.
    let mut tokens = Vec::with_capacity(text.len() / 4 + 8);
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    loop {
        lexer.skip_blanks()?;
        let start = lexer.at;
        let kind = lexer.next_kind()?;
        tokens.push(Token { kind, start: start as u32, end: lexer.at as u32 });
        if kind == TokenKind::End {
            return Ok(tokens);
        }
    }
}

/// The unescaped text of a token of kind `String`, `DollarString` or `QuotedName`.
pub(crate) fn unquote(kind: TokenKind, token_text: &str) -> String {
    let (edge, doubled, single) = match kind {
        TokenKind::String => (1, "''", "'"),
        TokenKind::QuotedName => (1, "\"\"", "\""),
        _ => (2, "", ""),
    };
    let inner = token_text.get(edge..token_text.len().saturating_sub(edge)).unwrap_or_default();
    if !single.is_empty() && inner.contains(single) {
        inner.replace(doubled, single)
    } else {
        inner.to_owned()
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    fn byte(&self, offset: usize) -> Option<u8> {
        self.bytes.get(self.at + offset).copied()
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn error(&self, at: usize, problem: String) -> SyntaxError {
        SyntaxError::Character { position: Position::of(self.text, at), problem }
    }

    fn unterminated(&self, expected: &str) -> SyntaxError {
        self.error(self.bytes.len(), format!("mismatched character '<EOF>' expecting '{expected}'"))
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r'), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) | (Some(b'/'), Some(b'/')) => {
                    let rest = self.rest();
                    let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    self.at += length.unwrap_or(rest.len());
                }
                (Some(b'/'), Some(b'*')) => {
                    let inside = self.text.get(self.at + 2..).unwrap_or_default();
                    let length = inside.find("*/").ok_or_else(|| self.unterminated("*"))?;
                    self.at += length + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Consumes one token.
    fn next_kind(&mut self) -> Result<TokenKind, SyntaxError> {
        let Some(first) = self.byte(0) else { return Ok(TokenKind::End) };
        match first {
            b'a'..=b'z' | b'A'..=b'Z' => Ok(self.word()),
            b'0'..=b'9' => Ok(self.number()),
            b'\'' => self.quoted(b'\'', TokenKind::String),
            b'"' => self.quoted(b'"', TokenKind::QuotedName),
            b'$' if self.byte(1) == Some(b'$') => {
                let inside = self.text.get(self.at + 2..).unwrap_or_default();
                let length = inside.find("$$").ok_or_else(|| self.unterminated("$"))?;
                self.at += length + 4;
                Ok(TokenKind::DollarString)
            }
            b'-' => Ok(self.minus()),
            _ => self.symbol(first),
        }
    }

    fn symbol(&mut self, first: u8) -> Result<TokenKind, SyntaxError> {
        let followed_by = |next| self.byte(1) == Some(next);
        let symbol = match first {
            b'(' => Symbol::LeftParenthesis,
            b')' => Symbol::RightParenthesis,
            b'[' => Symbol::LeftBracket,
            b']' => Symbol::RightBracket,
            b'{' => Symbol::LeftBrace,
            b'}' => Symbol::RightBrace,
            b',' => Symbol::Comma,
            b';' => Symbol::Semicolon,
            b':' => Symbol::Colon,
            b'.' if followed_by(b'.') => Symbol::Range,
            b'.' => Symbol::Dot,
            b'?' => Symbol::Question,
            b'=' => Symbol::Equal,
            b'!' if followed_by(b'=') => Symbol::NotEqual,
            b'<' if followed_by(b'=') => Symbol::LessOrEqual,
            b'<' => Symbol::Less,
            b'>' if followed_by(b'=') => Symbol::GreaterOrEqual,
            b'>' => Symbol::Greater,
            b'+' if followed_by(b'=') => Symbol::PlusEqual,
            b'+' => Symbol::Plus,
            b'*' => Symbol::Star,
            b'/' => Symbol::Slash,
            b'%' => Symbol::Percent,
            _ => {
                let character = self.text.get(self.at..).and_then(|rest| rest.chars().next());
                let problem = format!("no viable alternative at character '{}'", character.unwrap_or('?'));
                return Err(self.error(self.at, problem));
            }
        };
        self.at += symbol.text().len();
        Ok(TokenKind::Symbol(symbol))
    }

    /// A quoted token. A doubled quote is an escaped one.
    fn quoted(&mut self, quote: u8, kind: TokenKind) -> Result<TokenKind, SyntaxError> {
        let mut end = self.at + 1;
        loop {
            let inside = self.bytes.get(end..).unwrap_or_default();
            match inside.iter().position(|byte| *byte == quote) {
                None => return Err(self.unterminated(if quote == b'"' { "\"" } else { "'" })),
                Some(length) if inside.get(length + 1) == Some(&quote) => end += length + 2,
                Some(length) => {
                    self.at = end + length + 1;
                    return Ok(kind);
                }
            }
        }
    }

    fn word(&mut self) -> TokenKind {
        let rest = self.rest();
        let length = rest
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))
            .unwrap_or(rest.len());
        if length == 8 && is_uuid(rest) {
            self.at += UUID_BYTES;
            return TokenKind::Uuid;
        }
        if let Some(duration_length) = iso_duration_length(rest).filter(|duration| *duration >= length) {
            self.at += duration_length;
            return TokenKind::Duration;
        }
        let start = self.at;
        self.at += length;
        match self.text.get(start..self.at).and_then(Keyword::find) {
            Some(keyword) => TokenKind::Keyword(keyword),
            None => TokenKind::Word,
        }
    }

    /// A token that starts with `-`.
    fn minus(&mut self) -> TokenKind {
        match self.byte(1) {
            Some(b'0'..=b'9') => {
                self.at += 1;
                return self.decimal();
            }
            Some(b'=') => {
                self.at += 2;
                return TokenKind::Symbol(Symbol::MinusEqual);
            }
            Some(b'P') => {
                if let Some(length) = iso_duration_length(self.rest().get(1..).unwrap_or_default()) {
                    self.at += length + 1;
                    return TokenKind::Duration;
                }
            }
            Some(b'n' | b'N' | b'i' | b'I') => {
                let start = self.at;
                self.at += 1;
                match self.word() {
                    TokenKind::Keyword(Keyword::Nan) => return TokenKind::NegativeNan,
                    TokenKind::Keyword(Keyword::Infinity) => return TokenKind::NegativeInfinity,
                    _ => self.at = start,
                }
            }
            _ => {}
        }
        self.at += 1;
        TokenKind::Symbol(Symbol::Minus)
    }

    /// A token that starts with a digit.
    fn number(&mut self) -> TokenKind {
        let rest = self.rest();
        if is_uuid(rest) {
            self.at += UUID_BYTES;
            return TokenKind::Uuid;
        }
        if let [b'0', b'x' | b'X', digits @ ..] = rest {
            let length = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            self.at += length + 2;
            return TokenKind::Blob;
        }
        self.decimal()
    }

    /// An integer, a float or a duration, after its sign.
    fn decimal(&mut self) -> TokenKind {
        self.skip_digits();
        if self.skip_duration_unit() {
            loop {
                let end = self.at;
                self.skip_digits();
                if self.at == end || !self.skip_duration_unit() {
                    self.at = end;
                    return TokenKind::Duration;
                }
            }
        }
        let mut kind = TokenKind::Integer;
        // `1..2` is a range of integers, `1...2` a range from the float `1.`.
        let starts_fraction = match (self.byte(0), self.byte(1)) {
            (Some(b'.'), Some(b'.')) => self.byte(2) == Some(b'.'),
            (Some(b'.'), _) => true,
            _ => false,
        };
        if starts_fraction {
            kind = TokenKind::Float;
            self.at += 1;
            self.skip_digits();
        }
        if matches!(self.byte(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.byte(1), Some(b'+' | b'-')));
            if self.byte(1 + sign).is_some_and(|byte| byte.is_ascii_digit()) {
                kind = TokenKind::Float;
                self.at += 1 + sign;
                self.skip_digits();
            }
        }
        kind
    }

    fn skip_digits(&mut self) {
        while self.byte(0).is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Consumes `y`, `mo`, `w`, `d`, `h`, `m`, `s`, `ms`, `us`, `µs` or `ns`.
    fn skip_duration_unit(&mut self) -> bool {
        let lower = |byte: Option<u8>| byte.map_or(0, |byte| byte.to_ascii_lowercase());
        let length = match (lower(self.byte(0)), lower(self.byte(1))) {
            (b'm', b'o' | b's') | (b'u' | b'n', b's') => 2,
            (0xc2, 0xb5) if lower(self.byte(2)) == b's' => 3,
            (b'y' | b'w' | b'd' | b'h' | b'm' | b's', _) => 1,
            _ => return false,
        };
        self.at += length;
        true
    }
}

const UUID_BYTES: usize = 36;

/// Whether the bytes start with a UUID.
fn is_uuid(bytes: &[u8]) -> bool {
    bytes.get(8) == Some(&b'-')
        && bytes.get(..UUID_BYTES).is_some_and(|uuid| {
            uuid.iter().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
        })
}

/// The length of the ISO 8601 duration at the start of the bytes.
fn iso_duration_length(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'P') {
        return None;
    }
    iso_alternative_length(bytes).or_else(|| {
        let (weeks_end, weeks) = skip_designators(bytes, 1, b"W");
        if weeks {
            return Some(weeks_end);
        }
        let (date_end, has_date) = skip_designators(bytes, 1, b"YMD");
        if bytes.get(date_end) == Some(&b'T') {
            let (time_end, has_time) = skip_designators(bytes, date_end + 1, b"HMS");
            if has_time {
                return Some(time_end);
            }
        }
        has_date.then_some(date_end)
    })
}

/// `PYYYY-MM-DDThh:mm:ss`
fn iso_alternative_length(bytes: &[u8]) -> Option<usize> {
    const PATTERN: &[u8] = b"P0000-00-00T00:00:00";
    let matches = bytes.get(..PATTERN.len())?.iter().zip(PATTERN).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        _ => byte == pattern,
    });
    matches.then_some(PATTERN.len())
}

/// Skips numbers that are each followed by one of the designators, in order. Returns where they end and whether there
/// was any.
fn skip_designators(bytes: &[u8], start: usize, designators: &[u8]) -> (usize, bool) {
    let mut end = start;
    let mut next_allowed = 0;
    loop {
        let digits =
            bytes.get(end..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
        let designator = bytes.get(end + digits).filter(|_| digits > 0);
        let allowed = designators.get(next_allowed..).unwrap_or_default();
        match designator.and_then(|byte| allowed.iter().position(|allowed| allowed == byte)) {
            Some(place) => {
                end += digits + 1;
                next_allowed += place + 1;
            }
            None => return (end, end > start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let tokens = tokenize(text).unwrap();
        tokens.iter().filter(|t| t.kind != TokenKind::End).map(|t| (t.kind, &text[t.span()])).collect()
    }

    #[test]
    fn the_longest_token_wins() {
        use TokenKind::{Blob, Duration, Float, Integer, Uuid, Word};
        for (text, kind) in [
            ("-12", Integer),
            ("1.", Float),
            ("-1.5e-3", Float),
            ("1E5", Float),
            ("1h30m", Duration),
            ("-2mo5us", Duration),
            ("3µs", Duration),
            ("P1Y2M3DT4H5M6S", Duration),
            ("-P2W", Duration),
            ("PT5M", Duration),
            ("P2024-01-02T03:04:05", Duration),
            ("P1", Word),
            ("P1Year", Word),
            ("p1y", Word),
            ("0xCAFE", Blob),
            ("0x", Blob),
            ("123e4567-e89b-12d3-a456-426614174000", Uuid),
            ("abcdefab-e89b-12d3-a456-426614174000", Uuid),
            ("-NaN", TokenKind::NegativeNan),
            ("-infinity", TokenKind::NegativeInfinity),
            ("_", Word),
        ] {
            if text == "_" {
                assert!(tokenize(text).is_err());
            } else {
                assert_eq!(kinds(text), [(kind, text)], "{text}");
            }
        }
    }

    #[test]
    fn ranges_and_fractions_are_distinguished() {
        let texts = |text| kinds(text).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(texts("1..2"), ["1", "..", "2"]);
        assert_eq!(texts("1...2"), ["1.", "..", "2"]);
        assert_eq!(texts("a..b"), ["a", "..", "b"]);
        assert_eq!(texts("a-1"), ["a", "-1"]);
        assert_eq!(texts("a - 1"), ["a", "-", "1"]);
    }

    #[test]
    fn comments_and_white_space_are_skipped() {
        let text = "a -- x\n b // y\r c /* z\n 'z' */ d -- to the end";
        let words: Vec<_> = kinds(text).into_iter().map(|(_, text)| text).collect();
        assert_eq!(words, ["a", "b", "c", "d"]);
    }

    #[test]
    fn quotes_are_doubled_inside() {
        let unquoted = |text: &str| unquote(tokenize(text).unwrap()[0].kind, text);
        assert_eq!(unquoted("'it''s'"), "it's");
        assert_eq!(unquoted("''"), "");
        assert_eq!(unquoted("''''"), "'");
        assert_eq!(unquoted("\"a\"\"B\""), "a\"B");
        assert_eq!(unquoted("$$it's $ 5$$"), "it's $ 5");
    }

    #[test]
    fn an_invalid_character_is_reported_with_its_position() {
        let error = |text| tokenize(text).unwrap_err().to_string();
        assert_eq!(error("a\n ä"), "line 2:1 no viable alternative at character 'ä'");
        assert_eq!(error("äé ^"), "line 1:0 no viable alternative at character 'ä'");
        assert_eq!(error("'abc"), "line 1:4 mismatched character '<EOF>' expecting '''");
        assert_eq!(error("/* abc"), "line 1:6 mismatched character '<EOF>' expecting '*'");
        assert_eq!(error("$$ abc"), "line 1:6 mismatched character '<EOF>' expecting '$'");
    }
}
