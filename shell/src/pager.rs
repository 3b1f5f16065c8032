//! The stop between two pages on a terminal.

use std::io::{self, Write};

use crossterm::{
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    terminal,
};

use crate::error::ShellError;

/// Shown while the pager waits for a key, and erased afterwards.
const QUESTION: &str = "---MORE--- (Enter: next page, q: stop)";

/// Keys come one by one, Ctrl-C among them, until this is dropped.
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // The terminal is gone, or will be set anew by the line editor.
        let _ = terminal::disable_raw_mode();
    }
}

/// Waits for a key on the terminal. Returns whether to show another page; Ctrl-C is [`ShellError::Interrupted`].
pub fn ask_for_more() -> Result<bool, ShellError> {
    let mut output = io::stdout();
    let answer = {
        // This comes before the question: an earlier key is no answer to it.
        let _raw = RawMode::enter()?;
        write!(output, "{QUESTION} ")?;
        output.flush()?;
        loop {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && let Some(answer) = answer(key.code, key.modifiers)
            {
                break answer;
            }
        }
    };
    write!(output, "\r{:width$}\r", "", width = QUESTION.len() + 1)?;
    output.flush()?;
    answer
}

/// The answer that a key stands for; `None` for other keys.
fn answer(code: KeyCode, modifiers: KeyModifiers) -> Option<Result<bool, ShellError>> {
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Err(ShellError::Interrupted)),
        // Enter that was pressed before the question, while lines were still read.
        KeyCode::Char('j') if modifiers.contains(KeyModifiers::CONTROL) => Some(Ok(true)),
        KeyCode::Char('d') if modifiers.contains(KeyModifiers::CONTROL) => Some(Ok(false)),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Ok(false)),
        KeyCode::Enter | KeyCode::Char(' ') | KeyCode::PageDown | KeyCode::Down => Some(Ok(true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_on_stop_or_mean_nothing() {
        let plain = |code| answer(code, KeyModifiers::NONE);
        assert!(matches!(plain(KeyCode::Enter), Some(Ok(true))));
        assert!(matches!(plain(KeyCode::Char('q')), Some(Ok(false))));
        assert!(plain(KeyCode::Char('c')).is_none());
        let control = |letter| answer(KeyCode::Char(letter), KeyModifiers::CONTROL);
        assert!(matches!(control('c'), Some(Err(ShellError::Interrupted))));
        assert!(matches!(control('d'), Some(Ok(false))));
        assert!(matches!(control('j'), Some(Ok(true))));
    }
}
