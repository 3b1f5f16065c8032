//! The shell's own commands, read from their text. Everything else goes to the server.

use std::path::PathBuf;

use cql_lite::frame::Consistency;
use uuid::Uuid;

use crate::{
    copy::CopyCommand,
    error::ShellError,
    tail::TailCommand,
    token::{Token, tokens},
};

/// A statement or command.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A statement for the server.
    Cql,
    /// A DESCRIBE statement: the server runs it, the shell prints it in its own way.
    Describe,
    /// `None` asks for the current setting, here and below.
    Expand(Option<bool>),
    Tracing(Option<bool>),
    Receipt(Option<bool>),
    Paging(Option<Paging>),
    Consistency(Option<Consistency>),
    SerialConsistency(Option<Consistency>),
    Source(PathBuf),
    Capture(Option<Capture>),
    Copy(CopyCommand),
    Tail(TailCommand),
    ShowVersion,
    ShowHost,
    ShowSession(Uuid),
    Login {
        username: String,
        password: Option<String>,
    },
    Clear,
    Help(Vec<String>),
    Exit,
}

/// What PAGING sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    On,
    Off,
    /// On, with that many rows a page.
    Rows(i32),
}

/// What CAPTURE sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    File(PathBuf),
    Off,
}

/// The command that a statement is. `text` has no leading comments and no final `;`.
pub fn parse(text: &str) -> Result<Command, ShellError> {
    let keyword = text
        .split(|character: char| !(character.is_alphanumeric() || matches!(character, '_' | '?')))
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let arguments = || tokens(text).map(|mut tokens| tokens.split_off(1.min(tokens.len())));
    match keyword.as_str() {
        "DESCRIBE" | "DESC" => Ok(Command::Describe),
        "EXPAND" => Ok(Command::Expand(switch("EXPAND", &arguments()?)?)),
        "TRACING" => Ok(Command::Tracing(switch("TRACING", &arguments()?)?)),
        "RECEIPT" => Ok(Command::Receipt(switch("RECEIPT", &arguments()?)?)),
        "PAGING" => paging(&arguments()?),
        "CONSISTENCY" => Ok(Command::Consistency(level(&arguments()?)?)),
        "SERIAL" => match arguments()?.split_first() {
            Some((first, rest)) if first.is("CONSISTENCY") => match level(rest)? {
                Some(level) if !level.is_serial() => {
                    Err(usage("The serial consistency level is SERIAL or LOCAL_SERIAL"))
                }
                level => Ok(Command::SerialConsistency(level)),
            },
            _ => Err(usage("SERIAL CONSISTENCY [SERIAL | LOCAL_SERIAL]")),
        },
        "SOURCE" => match &arguments()?[..] {
            [Token::Text(path)] => Ok(Command::Source(path.into())),
            _ => Err(usage("SOURCE '<file>'")),
        },
        "CAPTURE" => match &arguments()?[..] {
            [] => Ok(Command::Capture(None)),
            [Token::Text(path)] => Ok(Command::Capture(Some(Capture::File(path.into())))),
            [off] if off.is("OFF") => Ok(Command::Capture(Some(Capture::Off))),
            _ => Err(usage("CAPTURE ['<file>' | OFF]")),
        },
        "COPY" => CopyCommand::parse(&arguments()?).map(Command::Copy),
        "TAIL" => TailCommand::parse(&arguments()?).map(Command::Tail),
        "SHOW" => show(&arguments()?),
        "LOGIN" => match &arguments()?[..] {
            [username] => login(username, None),
            [username, password] => login(username, Some(password)),
            _ => Err(usage("LOGIN <username> ['<password>']")),
        },
        "CLEAR" | "CLS" => Ok(Command::Clear),
        "HELP" | "?" => {
            let topics = arguments()?;
            Ok(Command::Help(topics.iter().filter_map(Token::text).map(str::to_ascii_uppercase).collect()))
        }
        "EXIT" | "QUIT" => Ok(Command::Exit),
        _ => Ok(Command::Cql),
    }
}

fn usage(text: &str) -> ShellError {
    ShellError::Usage(format!("Improper use of the command. Usage: {text}"))
}

fn switch(command: &str, arguments: &[Token]) -> Result<Option<bool>, ShellError> {
    match arguments {
        [] => Ok(None),
        [on] if on.is("ON") => Ok(Some(true)),
        [off] if off.is("OFF") => Ok(Some(false)),
        _ => Err(usage(&format!("{command} [ON | OFF]"))),
    }
}

fn paging(arguments: &[Token]) -> Result<Command, ShellError> {
    let setting = match arguments {
        [] => None,
        [on] if on.is("ON") => Some(Paging::On),
        [off] if off.is("OFF") => Some(Paging::Off),
        [Token::Word(rows)] => match rows.parse() {
            Ok(rows) if rows > 0 => Some(Paging::Rows(rows)),
            _ => return Err(usage("PAGING [ON | OFF | <rows a page>]")),
        },
        _ => return Err(usage("PAGING [ON | OFF | <rows a page>]")),
    };
    Ok(Command::Paging(setting))
}

fn level(arguments: &[Token]) -> Result<Option<Consistency>, ShellError> {
    match arguments {
        [] => Ok(None),
        [Token::Word(name)] => match name.parse() {
            // Not a level that clients can ask for.
            Ok(Consistency::NodeLocal) | Err(_) => {
                Err(ShellError::Usage(format!("Unknown consistency level {name}")))
            }
            Ok(level) => Ok(Some(level)),
        },
        _ => Err(usage("CONSISTENCY [<level>]")),
    }
}

fn show(arguments: &[Token]) -> Result<Command, ShellError> {
    match arguments {
        [version] if version.is("VERSION") => Ok(Command::ShowVersion),
        [host] if host.is("HOST") => Ok(Command::ShowHost),
        [session, Token::Word(id)] if session.is("SESSION") => match Uuid::parse_str(id) {
            Ok(id) => Ok(Command::ShowSession(id)),
            Err(_) => Err(ShellError::Usage(format!("{id} is not a session id (a UUID)"))),
        },
        _ => Err(usage("SHOW VERSION | HOST | SESSION <id>")),
    }
}

fn login(username: &Token, password: Option<&Token>) -> Result<Command, ShellError> {
    let username = username.text().ok_or_else(|| usage("LOGIN <username> ['<password>']"))?.to_owned();
    let password = password.and_then(Token::text).map(str::to_owned);
    Ok(Command::Login { username, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_statements() {
        assert_eq!(parse("SELECT * FROM t").unwrap(), Command::Cql);
        assert_eq!(parse("desc tables").unwrap(), Command::Describe);
        assert_eq!(parse("EXPAND").unwrap(), Command::Expand(None));
        assert_eq!(parse("expand on").unwrap(), Command::Expand(Some(true)));
        assert_eq!(parse("TRACING OFF").unwrap(), Command::Tracing(Some(false)));
        assert_eq!(parse("receipt on").unwrap(), Command::Receipt(Some(true)));
        assert_eq!(parse("PAGING 50").unwrap(), Command::Paging(Some(Paging::Rows(50))));
        assert_eq!(
            parse("consistency Local_Quorum").unwrap(),
            Command::Consistency(Some(Consistency::LocalQuorum))
        );
        assert_eq!(
            parse("SERIAL CONSISTENCY LOCAL_SERIAL").unwrap(),
            Command::SerialConsistency(Some(Consistency::LocalSerial))
        );
        assert_eq!(parse("SOURCE 'a b.cql'").unwrap(), Command::Source("a b.cql".into()));
        assert_eq!(parse("CAPTURE 'it''s'").unwrap(), Command::Capture(Some(Capture::File("it's".into()))));
        assert_eq!(parse("CAPTURE OFF").unwrap(), Command::Capture(Some(Capture::Off)));
        assert_eq!(parse("exit").unwrap(), Command::Exit);
        assert_eq!(parse("? copy").unwrap(), Command::Help(vec!["COPY".to_owned()]));
        let id = Uuid::from_u128(0x1234);
        assert_eq!(parse(&format!("SHOW SESSION {id}")).unwrap(), Command::ShowSession(id));
        assert_eq!(
            parse("LOGIN bob 'p w'").unwrap(),
            Command::Login { username: "bob".to_owned(), password: Some("p w".to_owned()) }
        );
    }

    #[test]
    fn wrong_use_is_refused() {
        for text in [
            "EXPAND MAYBE",
            "PAGING 0",
            "CONSISTENCY MANY",
            "CONSISTENCY NODE_LOCAL",
            "SERIAL CONSISTENCY ONE",
            "SERIAL",
            "SOURCE file",
            "CAPTURE a b",
            "SHOW TIME",
            "SHOW SESSION x",
            "LOGIN",
            "SOURCE 'open",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
