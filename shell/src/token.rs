//! The text of a command into words, quoted text and symbols.

use crate::error::ShellError;

/// A word of a command, or one of its symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A bare word, as it was written.
    Word(String),
    /// The content of single quotes.
    Text(String),
    /// The content of double quotes.
    Name(String),
    Symbol(char),
}

impl Token {
    /// Whether it is this bare word, in any case.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// The text of a word or of quotes.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Word(text) | Self::Text(text) | Self::Name(text) => Some(text),
            Self::Symbol(_) => None,
        }
    }
}

/// Splits a command into tokens. An open quote is an error.
pub fn tokens(text: &str) -> Result<Vec<Token>, ShellError> {
    let mut tokens = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character.is_whitespace() {
            continue;
        }
        if matches!(character, '\'' | '"') {
            let mut content = String::new();
            loop {
                match characters.next() {
                    Some(next) if next != character => content.push(next),
                    Some(_) if characters.peek() == Some(&character) => {
                        characters.next();
                        content.push(character);
                    }
                    Some(_) => break,
                    None => return Err(ShellError::Usage(format!("Unterminated quote in: {text}"))),
                }
            }
            tokens.push(if character == '\'' { Token::Text(content) } else { Token::Name(content) });
        } else if is_word_character(character) {
            let mut word = String::from(character);
            while let Some(next) = characters.next_if(|&next| is_word_character(next)) {
                word.push(next);
            }
            tokens.push(Token::Word(word));
        } else {
            tokens.push(Token::Symbol(character));
        }
    }
    Ok(tokens)
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '?' | '/' | '~' | '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_symbols_are_told_apart() {
        let found = tokens("copy Ks.\"T\"\"x\" = 'it''s'").unwrap();
        let word = |text: &str| Token::Word(text.to_owned());
        assert_eq!(
            found,
            [
                word("copy"),
                word("Ks"),
                Token::Symbol('.'),
                Token::Name("T\"x".to_owned()),
                Token::Symbol('='),
                Token::Text("it's".to_owned()),
            ]
        );
        assert!(found[0].is("COPY") && !found[3].is("T\"x"));
        assert!(tokens("'open").is_err());
    }
}
