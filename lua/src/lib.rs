//! User-defined functions in Lua 5.4.
//!
//! This crate is where the C library of Lua is walled in: no other uses `mlua`, and none of its unsafe interface is used here. What a
//! function can do is in [`library`] and [`sandbox`].
//!
//! Each thread has a state of its own, made at the first call and thrown away when a call has spent its work or memory.
#![forbid(unsafe_code)]

mod budget;
mod convert;
mod library;
mod number;
mod pattern;
mod sandbox;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
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

/// Works in this thread's state. The result says whether the state must go.
fn with_sandbox<T>(work: impl FnOnce(&mut Sandbox) -> (T, bool)) -> Result<T, String> {
    SANDBOX.with_borrow_mut(|slot| {
        let sandbox = match slot {
            Some(sandbox) => sandbox,
            None => slot.insert(Sandbox::new().map_err(|error| error.to_string())?),
        };
        let (result, ends_state) = work(sandbox);
        if ends_state {
            *slot = None;
        }
        Ok(result)
    })
}

impl UserFunctionRuntime for LuaRuntime {
    fn is_enabled(&self) -> bool {
        true
    }

    fn check(&self, function: &UserFunction) -> Result<(), String> {
        with_sandbox(|sandbox| {
            let checked = sandbox.check(function);
            let has_failed = checked.is_err();
            (checked, has_failed)
        })?
    }

    fn call(
        &self,
        function: &Arc<UserFunction>,
        arguments: &[Option<&[u8]>],
    ) -> Result<Option<Vec<u8>>, String> {
        let result = with_sandbox(|sandbox| {
            let result = sandbox.call(function, arguments);
            let ends_state = matches!(&result, Err(failure) if failure.ends_state);
            (result, ends_state)
        })?;
        result.map_err(|failure| failure.problem)
    }

    fn steps_on_this_thread(&self) -> u64 {
        budget::steps_on_this_thread()
    }
}
