//! Panics of nodes: the runtime of a node catches them task by task, so they are recorded in the panic hook.

use std::cell::RefCell;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records every panic of a thread with the thread.
pub fn watch() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
        let message = panic.payload_as_str().unwrap_or("no message");
        PANICS.with_borrow_mut(|panics| panics.push(format!("panic{place}: {message}")));
    }));
}

/// The panics of this thread since the last call.
pub fn take() -> Vec<String> {
    PANICS.take()
}
