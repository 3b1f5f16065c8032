//! The line editor: prompt, history, completion, and input over several lines.

use std::{
    borrow::Cow,
    env,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use reedline::{
    ColumnarMenu, Emacs, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, ValidationResult, Validator,
    default_emacs_keybindings,
};

use crate::{
    completion::{SchemaCache, SchemaCompleter},
    error::ShellError,
    shell::{Flow, Shell},
    splitter,
};

const MENU: &str = "completion_menu";
/// Lines of history that are kept.
const HISTORY_LINES: usize = 10_000;

struct ShellPrompt {
    left: String,
}

impl Prompt for ShellPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.left)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("... ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(history: {}) ", search.term))
    }
}

/// Takes another line until every statement is ended.
struct StatementValidator;

impl Validator for StatementValidator {
    fn validate(&self, line: &str) -> ValidationResult {
        if splitter::is_complete(line) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

/// Reads and runs statements until the user leaves.
pub fn run(shell: &mut Shell) -> Result<(), ShellError> {
    shell.greet()?;
    shell.connection().catch_interrupts()?;
    let schema = Arc::new(Mutex::new(SchemaCache::new(shell.connection())));
    let mut editor = editor(SchemaCompleter::new(Arc::clone(&schema)));
    let mut is_history_lost = false;
    loop {
        let prompt = ShellPrompt { left: shell.prompt() };
        match editor.read_line(&prompt)? {
            Signal::Success(input) => {
                // A shell that is killed keeps its history, too. One that cannot keep it goes on.
                if let Err(error) = editor.sync_history()
                    && !std::mem::replace(&mut is_history_lost, true)
                {
                    eprintln!("History is not kept: {error}");
                }
                // An interruption from before these statements does not apply to them.
                shell.connection().interrupts().take();
                match shell.run_script(None, &input) {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::Exit) => return Ok(()),
                    // The driver connects anew by itself.
                    Err(error @ (ShellError::Connection(_) | ShellError::Interrupted)) => {
                        eprintln!("{error}");
                    }
                    Err(error) => return Err(error),
                }
                schema.lock().unwrap_or_else(PoisonError::into_inner).expire(shell.connection());
            }
            Signal::CtrlD => return Ok(()),
            _ => {}
        }
    }
}

fn editor(completer: SchemaCompleter) -> Reedline {
    let mut keys = default_emacs_keybindings();
    keys.add_binding(
        KeyModifiers::NONE,
        KeyCode::Tab,
        ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]),
    );
    let menu = ColumnarMenu::default().with_name(MENU);
    let editor = Reedline::create()
        .with_completer(Box::new(completer))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_partial_completions(true)
        .with_quick_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_validator(Box::new(StatementValidator))
        // A line that starts with a blank is not kept: for passwords.
        .with_history_exclusion_prefix(Some(" ".to_owned()));
    match history_path().map(|path| FileBackedHistory::with_file(HISTORY_LINES, path)) {
        Some(Ok(history)) => editor.with_history(Box::new(history)),
        Some(Err(error)) => {
            eprintln!("History is not kept: {error}");
            editor
        }
        None => editor,
    }
}

/// The environment variable that names the file of the history.
pub const HISTORY_VARIABLE: &str = "HELENUS_HISTORY";

/// What [`HISTORY_VARIABLE`] says, or a file in the user's state directory.
fn history_path() -> Option<PathBuf> {
    if let Some(path) = env::var_os(HISTORY_VARIABLE) {
        return Some(path.into());
    }
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")))?;
    Some(state.join("helenus").join("shell_history"))
}
