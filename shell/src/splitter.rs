//! Input text into statements.
//!
//! A statement ends with a `;` outside of quotes, `$$` bodies and comments; a batch ends with the `;` after
//! `APPLY BATCH`, a transaction with that after `COMMIT TRANSACTION`. The shell's own commands also end with their line, except COPY, which may be long.

/// A statement with the line it starts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The text without surrounding blanks, leading comments and the final `;`.
    pub text: String,
    /// The line, counted from 1.
    pub line: usize,
}

/// The statements of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    pub pieces: Vec<Piece>,
    /// The text behind the last complete statement, if it is more than blanks and comments.
    pub rest: Option<Rest>,
    /// The text ends in a comment that is not ended.
    pub in_comment: bool,
}

/// Text that is not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    pub piece: Piece,
    /// A quote, a comment, a batch or a transaction is open: it cannot be run as it is.
    pub is_open: bool,
}

/// Commands of the shell that end with their line.
const LINE_COMMANDS: [&str; 19] = [
    "help",
    "?",
    "consistency",
    "serial",
    "tail",
    "describe",
    "desc",
    "show",
    "source",
    "capture",
    "login",
    "tracing",
    "receipt",
    "expand",
    "paging",
    "exit",
    "quit",
    "clear",
    "cls",
];

/// The construct in which the scanner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    /// Text in these quotes; a doubled quote closes and opens it again.
    Quotes(char),
    DollarQuotes,
    LineComment,
    BlockComment,
}

/// Splits a text.
pub fn split(text: &str) -> Split {
    let mut splitter = Splitter::default();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|&(_, next)| next);
        if splitter.take(text, at, character, next) {
            // The second character of `--`, `//`, `/*`, `*/` or `$$`.
            characters.next();
        }
        if character == '\n' {
            splitter.line += 1;
        }
    }
    splitter.finish(text)
}

/// The text without leading blanks and comments.
pub fn trim_start(text: &str) -> &str {
    let mut text = text.trim_start();
    loop {
        let after = if text.starts_with("--") || text.starts_with("//") {
            text.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return text;
        };
        text = after.trim_start();
    }
}

#[derive(Debug)]
struct Splitter {
    inside: Inside,
    line: usize,
    /// Where the current statement starts, if it has more than blanks and comments: offset and line.
    start: Option<(usize, usize)>,
    /// The word being read.
    word: String,
    /// The first words of the statement, lower case, as far as they matter.
    first_words: Vec<String>,
    /// The last two words.
    last_words: [String; 2],
    split: Split,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            inside: Inside::Code,
            line: 1,
            start: None,
            word: String::new(),
            first_words: Vec::new(),
            last_words: Default::default(),
            split: Split::default(),
        }
    }
}

impl Splitter {
    /// Takes one character; returns whether the next one belongs to it.
    fn take(&mut self, text: &str, at: usize, character: char, next: Option<char>) -> bool {
        match self.inside {
            Inside::Code => return self.take_code(text, at, character, next),
            Inside::Quotes(quote) if character == quote => self.inside = Inside::Code,
            Inside::LineComment if character == '\n' => self.inside = Inside::Code,
            Inside::DollarQuotes if character == '$' && next == Some('$') => {
                self.inside = Inside::Code;
                return true;
            }
            Inside::BlockComment if character == '*' && next == Some('/') => {
                self.inside = Inside::Code;
                return true;
            }
            _ => {}
        }
        false
    }

    fn take_code(&mut self, text: &str, at: usize, character: char, next: Option<char>) -> bool {
        let comment = match (character, next) {
            ('-', Some('-')) | ('/', Some('/')) => Some(Inside::LineComment),
            ('/', Some('*')) => Some(Inside::BlockComment),
            _ => None,
        };
        if let Some(comment) = comment {
            self.end_word();
            self.inside = comment;
            return true;
        }
        if self.start.is_none() && !character.is_whitespace() && character != ';' {
            self.start = Some((at, self.line));
        }
        if character.is_alphanumeric() || matches!(character, '_' | '?') {
            self.word.extend(character.to_lowercase());
            return false;
        }
        self.end_word();
        match character {
            '\'' | '"' => self.inside = Inside::Quotes(character),
            '$' if next == Some('$') => {
                self.inside = Inside::DollarQuotes;
                return true;
            }
            ';' if !self.in_batch() => self.end_statement(text, at),
            '\n' if self.is_line_command() => self.end_statement(text, at),
            _ => {}
        }
        false
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if self.first_words.len() < 3 {
            self.first_words.push(word.clone());
        }
        self.last_words.rotate_left(1);
        self.last_words[1] = word;
    }

    /// Whether the statement is a batch or a transaction that is not ended yet.
    fn in_batch(&self) -> bool {
        let first: Vec<&str> = self.first_words.iter().map(String::as_str).collect();
        let is_batch = matches!(
            first[..],
            ["begin", "batch", ..] | ["begin", "unlogged" | "logged" | "counter", "batch"]
        );
        let is_transaction = matches!(first[..], ["begin", "transaction", ..]);
        is_batch && self.last_words != ["apply", "batch"]
            || is_transaction && self.last_words != ["commit", "transaction"]
    }

    fn is_line_command(&self) -> bool {
        self.first_words.first().is_some_and(|first| LINE_COMMANDS.contains(&first.as_str()))
    }

    fn end_statement(&mut self, text: &str, end: usize) {
        if let Some(piece) = self.piece(text, end) {
            self.split.pieces.push(piece);
        }
        self.start = None;
        self.first_words.clear();
        self.last_words = Default::default();
    }

    fn piece(&self, text: &str, end: usize) -> Option<Piece> {
        let (start, line) = self.start?;
        let text = text.get(start..end)?.trim_end();
        Some(Piece { text: text.to_owned(), line })
    }

    fn finish(mut self, text: &str) -> Split {
        self.end_word();
        let is_open = !matches!(self.inside, Inside::Code | Inside::LineComment) || self.in_batch();
        self.split.in_comment = self.inside == Inside::BlockComment;
        self.split.rest = self.piece(text, text.len()).map(|piece| Rest { piece, is_open });
        self.split
    }
}

/// Whether what was typed so far can be run: every statement and comment is ended, or the last is a command that ends
/// with its line.
pub fn is_complete(text: &str) -> bool {
    // A line break ends the shell's commands.
    let split = split(&format!("{text}\n"));
    split.rest.is_none() && !split.in_comment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let split = split(text);
        assert_eq!(split.rest, None, "{text}");
        split.pieces.into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_semicolon_ends_a_statement() {
        assert_eq!(texts("SELECT 1; SELECT 2 ;\n;;"), ["SELECT 1", "SELECT 2"]);
    }

    #[test]
    fn semicolons_in_quotes_and_comments_do_not() {
        assert_eq!(texts("a ';' \";\" 'it''s;' ;"), ["a ';' \";\" 'it''s;'"]);
        assert_eq!(texts("a $$ ; ' $$ ;"), ["a $$ ; ' $$"]);
        assert_eq!(texts("a -- ; '\n b /* ; \" */ c // ;\n ;"), ["a -- ; '\n b /* ; \" */ c // ;"]);
    }

    #[test]
    fn leading_comments_are_left_out() {
        let split = split("-- first\n/* second\n */ SELECT 1;");
        assert_eq!(split.pieces, [Piece { text: "SELECT 1".to_owned(), line: 3 }]);
        assert_eq!(trim_start(" -- a\n // b\n/* c */ SELECT"), "SELECT");
    }

    #[test]
    fn a_batch_ends_after_apply_batch() {
        let batch = "BEGIN UNLOGGED BATCH INSERT INTO t (a) VALUES (1); UPDATE t SET a = 2; APPLY BATCH";
        assert_eq!(texts(&format!("{batch}; SELECT 1;")), [batch, "SELECT 1"]);
        assert!(split("BEGIN BATCH DELETE FROM t;").rest.unwrap().is_open);
    }

    #[test]
    fn a_transaction_ends_after_commit_transaction() {
        let transaction = "BEGIN TRANSACTION LET r = (SELECT * FROM t WHERE k = 1); SELECT r.v; IF r.v > 0 THEN \
                           UPDATE t SET v += 1 WHERE k = 1; END IF COMMIT TRANSACTION";
        assert_eq!(texts(&format!("{transaction}; SELECT 1;")), [transaction, "SELECT 1"]);
        assert!(split("BEGIN TRANSACTION SELECT * FROM t WHERE k = 1;").rest.unwrap().is_open);
    }

    #[test]
    fn commands_of_the_shell_end_with_their_line() {
        assert_eq!(
            texts("EXPAND ON\nconsistency quorum\nDESC TABLE t;TAIL t FROM 10m\nSELECT\n1;"),
            ["EXPAND ON", "consistency quorum", "DESC TABLE t", "TAIL t FROM 10m", "SELECT\n1"]
        );
        assert!(is_complete("HELP"));
        assert!(is_complete("?"));
        assert!(!is_complete("COPY t TO 'f'"));
        assert!(!is_complete("SELECT 1"));
        assert!(is_complete("SELECT 1;"));
        assert!(is_complete("  "));
    }

    #[test]
    fn a_comment_goes_on_until_it_is_ended() {
        for text in ["/* comment", "/*", "SELECT 1; /* then", "HELP\n/* a; */ /* b;", "/* a\nb;"] {
            assert!(!is_complete(text), "{text}");
        }
        assert!(is_complete("/* comment\nover lines */"));
        assert!(is_complete("/* a */ SELECT 1;"));
        assert!(is_complete("-- comment"));
    }

    #[test]
    fn the_rest_tells_whether_it_can_be_run() {
        let rest = |text| split(text).rest.unwrap();
        assert!(!rest("SELECT 1").is_open);
        assert!(rest("SELECT 'a").is_open);
        assert!(rest("SELECT /* a").is_open);
        assert!(rest("SELECT $$ a").is_open);
        assert_eq!(rest("a;\n\nb").piece.line, 3);
    }
}
