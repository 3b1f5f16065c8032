//! A password from standard input.

use std::fmt;
use std::io::{self, BufRead, IsTerminal};

/// A password, which no text of an error or a log shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password")
    }
}

/// The reason why there is no password.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("cannot read the password from standard input: {0}")]
    Read(#[from] io::Error),
    #[error("standard input has no password: one line is expected")]
    Missing,
    #[error("standard input has more than one line: the password is one")]
    Lines,
}

impl Password {
    /// Reads the password once: on a terminal it is asked for and not shown.
    pub(crate) fn of_standard_input(name: &str) -> Result<Self, PasswordError> {
        if io::stdin().is_terminal() {
            let password = rpassword::prompt_password(format!("Password of {name}: "))?;
            return if password.is_empty() { Err(PasswordError::Missing) } else { Ok(Self(password)) };
        }
        Self::read(io::stdin().lock())
    }

    fn read(mut input: impl BufRead) -> Result<Self, PasswordError> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let password =
            line.strip_suffix('\n').map_or(line.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        if password.is_empty() {
            return Err(PasswordError::Missing);
        }
        if !input.fill_buf()?.is_empty() {
            return Err(PasswordError::Lines);
        }
        Ok(Self(password.to_owned()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        for text in ["p w", "p w\n", "p w\r\n"] {
            assert_eq!(Password::read(text.as_bytes()).unwrap(), Password("p w".to_owned()));
        }
        for text in ["", "\n", "\np"] {
            assert!(matches!(Password::read(text.as_bytes()), Err(PasswordError::Missing)), "{text:?}");
        }
        assert!(matches!(Password::read(&b"a\nb\n"[..]), Err(PasswordError::Lines)));
        assert!(matches!(Password::read(&b"\xff\n"[..]), Err(PasswordError::Read(_))));
        assert_eq!(format!("{:?}", Password("secret".to_owned())), "Password");
    }
}
