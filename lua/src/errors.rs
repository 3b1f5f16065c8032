//! What errors of the interpreter mean, and how they are told.

use mlua::Error;

pub fn is_out_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_out_of_memory(cause),
        _ => false,
    }
}

/// The message of an error without the places in the interpreter.
pub fn message(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return message(cause),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } | Error::MemoryError(text) => {
            text
        }
        other => &other.to_string(),
    };
    let text = text.split("\nstack traceback:").next().unwrap_or(text);
    text.trim().strip_prefix("runtime error: ").unwrap_or(text.trim()).to_owned()
}
