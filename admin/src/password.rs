//! A password from standard input, or from a file.

use std::fmt;
use std::io::{self, BufRead, IsTerminal};
use std::path::Path;

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
    #[error("cannot read the password from {place}: {source}")]
    Read { place: String, source: io::Error },
    #[error("{place} has no password: one line is expected")]
    Missing { place: String },
    #[error("{place} has more than one line: the password is one")]
    Lines { place: String },
}

/// Reads the password of a role: one line of a file, or of standard input (on a terminal it is asked for and not shown).
pub fn read_password(name: &str, file: Option<&Path>) -> io::Result<String> {
    let password = file.map_or_else(|| Password::of_standard_input(name), Password::of_file);
    password.map(|password| password.0).map_err(io::Error::other)
}

const STANDARD_INPUT: &str = "standard input";

impl Password {
    /// Reads the password once: on a terminal it is asked for and not shown.
    pub(crate) fn of_standard_input(name: &str) -> Result<Self, PasswordError> {
        if io::stdin().is_terminal() {
            let place = STANDARD_INPUT.to_owned();
            return match rpassword::prompt_password(format!("Password of {name}: ")) {
                Ok(password) if password.is_empty() => Err(PasswordError::Missing { place }),
                Ok(password) => Ok(Self(password)),
                Err(source) => Err(PasswordError::Read { place, source }),
            };
        }
        Self::read(STANDARD_INPUT, io::stdin().lock())
    }

    /// Reads the password that is the one line of a file.
    pub(crate) fn of_file(path: &Path) -> Result<Self, PasswordError> {
        let place = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(file) => Self::read(&place, io::BufReader::new(file)),
            Err(source) => Err(PasswordError::Read { place, source }),
        }
    }

    fn read(place: &str, mut input: impl BufRead) -> Result<Self, PasswordError> {
        let place = place.to_owned();
        let mut line = String::new();
        if let Err(source) = input.read_line(&mut line) {
            return Err(PasswordError::Read { place, source });
        }
        let password =
            line.strip_suffix('\n').map_or(line.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        if password.is_empty() {
            return Err(PasswordError::Missing { place });
        }
        match input.fill_buf() {
            Ok([]) => Ok(Self(password.to_owned())),
            Ok(_) => Err(PasswordError::Lines { place }),
            Err(source) => Err(PasswordError::Read { place, source }),
        }
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
            assert_eq!(Password::read("x", text.as_bytes()).unwrap(), Password("p w".to_owned()));
        }
        for text in ["", "\n", "\np"] {
            assert!(
                matches!(Password::read("x", text.as_bytes()), Err(PasswordError::Missing { .. })),
                "{text:?}"
            );
        }
        assert!(matches!(Password::read("x", &b"a\nb\n"[..]), Err(PasswordError::Lines { .. })));
        assert!(matches!(Password::read("x", &b"\xff\n"[..]), Err(PasswordError::Read { .. })));
        assert_eq!(format!("{:?}", Password("secret".to_owned())), "Password");
    }
}
