//! User-defined functions in Lua 5.4.
//!
//! This crate is where the C library of Lua is walled in: no other uses `mlua`, and none of its unsafe interface is used here. What a
//! function can do is in [`library`] and [`sandbox`].
//!
//! Each thread has a state of its own, made at the first call and thrown away when a call has spent its work or memory. A call that
//! lacks memory in a state that others have used is done again in a new one, so that its result is the same on every node.
#![forbid(unsafe_code)]

mod budget;
mod convert;
mod errors;
mod library;
mod number;
mod pattern;
mod sandbox;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use helenus_query::functions::user::{UserFunction, UserFunctionRuntime};

use crate::sandbox::Sandbox;

/// The runtime of functions in Lua.
#[derive(Debug)]
pub struct LuaRuntime;

/// The one runtime of a process: all its state is kept by thread.
pub static LUA: LuaRuntime = LuaRuntime;

thread_local! {
    static SANDBOX: RefCell<Option<Sandbox>> = const { RefCell::new(None) };
}

/// `mlua` panics where Lua's memory is not enough for the handling of an error.
const PANICKED: &str = "the interpreter has failed: most likely there is not enough memory";

/// Works in this thread's state. The result says whether the state must go.
///
/// A panic ends the state and is an error of the call: nothing outside the state has been changed by it.
fn with_sandbox<T>(work: impl FnOnce(&mut Sandbox) -> (T, bool)) -> Result<T, String> {
    SANDBOX.with_borrow_mut(|slot| {
        let mut state = match slot.take() {
            Some(state) => state,
            None => Sandbox::new().map_err(|error| error.to_string())?,
        };
        let Ok((result, ends_state)) = catch_unwind(AssertUnwindSafe(|| work(&mut state))) else {
            // Its end may fail as well.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(state)));
            return Err(PANICKED.to_owned());
        };
        *slot = (!ends_state).then_some(state);
        Ok(result)
    })
}

impl UserFunctionRuntime for LuaRuntime {
    fn is_enabled(&self) -> bool {
        true
    }

    fn check(&self, function: &UserFunction) -> Result<(), String> {
        // In a state of its own: what others have left does not decide whether there is memory for it.
        SANDBOX.take();
        with_sandbox(|sandbox| (sandbox.check(function), true))?
    }

    fn call(
        &self,
        function: &Arc<UserFunction>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, String> {
        let mut has_new_state = SANDBOX.with_borrow(Option::is_none);
        loop {
            let worked = with_sandbox(|sandbox| {
                let outcome = sandbox.call(function, arguments);
                ((outcome.result, outcome.lacked_memory), outcome.ends_state)
            });
            let (result, lacked_memory) = worked.unwrap_or_else(|problem| (Err(problem), true));
            if !lacked_memory || has_new_state {
                return result;
            }
            has_new_state = true;
        }
    }

    fn steps_on_this_thread(&self) -> u64 {
        budget::steps_on_this_thread()
    }
}
