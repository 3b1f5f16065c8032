//! One state of Lua, in which functions are compiled and called.
//!
//! Invariants:
//! * A call sees its arguments and the library, and writes its globals into a table of its own: nothing is left for the next call.
//! * A call ends: its work is counted ([`crate::budget`]), its memory is bounded by the state's, and its code cannot catch the error
//!   that ends it. What is left out of the library for that is listed in [`crate::library`].
//! * Only text is compiled, never bytecode, which could break the memory of the process.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use helenus_query::functions::user::UserFunction;
use mlua::{
    ChunkMode, Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState,
};

use crate::budget::{Budget, INSTRUCTIONS_PER_STEP};
use crate::convert::{to_lua, to_wire};
use crate::errors::{is_out_of_memory, message};
use crate::library;

/// Memory of a state, with the library, the compiled functions and the values of a call.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Memory in use after a call above which garbage is collected at once, and the state is given up if that is not enough.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Most functions that stay compiled.
const COMPILED_MAX: usize = 256;
/// Steps that a call costs besides the work of the function: conversions.
const CALL_STEPS: u64 = 5;

/// Words of Lua that cannot name an argument.
const KEYWORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// What came of a call.
pub struct Outcome {
    pub result: Result<Option<Vec<u8>>, String>,
    /// The state must not be used again.
    pub ends_state: bool,
    /// The memory was not enough. What other calls have left in the state counts: in a new one it may be.
    pub lacked_memory: bool,
}

pub struct Sandbox {
    lua: Lua,
    budget: Rc<Budget>,
    /// The metatable of every call's globals.
    globals: Table,
    /// By the address of the definition, which stays where it is while it is held here.
    compiled: HashMap<*const UserFunction, (Arc<UserFunction>, Function)>,
}

impl Sandbox {
    pub fn new() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let budget = Rc::new(Budget::new());
        let globals = lua.create_table()?;
        globals.raw_set("__index", library::globals(&lua, &budget)?)?;
        let counted = budget.clone();
        lua.set_hook(HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_STEP), move |_, _| {
            counted.spend(1)?;
            Ok(VmState::Continue)
        })?;
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        Ok(Self { lua, budget, globals, compiled: HashMap::new() })
    }

    /// Compiles a function, and forgets it.
    pub fn check(&self, function: &UserFunction) -> Result<(), String> {
        self.compile(function).map(|_| ()).map_err(|error| message(&error))
    }

    pub fn call(&mut self, function: &Arc<UserFunction>, arguments: &[Option<&[u8]>]) -> Outcome {
        let called = self.compiled(function).and_then(|compiled| {
            self.budget.begin();
            self.run(&compiled, function, arguments)
        });
        let lacked_memory = called.as_ref().is_err_and(is_out_of_memory);
        let result = match called {
            Ok(value) => {
                let taken = to_wire(&function.return_type, &value, &self.budget);
                taken.map_err(|problem| problem.to_string())
            }
            Err(error) => Err(message(&error)),
        };
        let ends_state = lacked_memory || self.budget.is_spent() || self.is_full();
        Outcome { result, ends_state, lacked_memory }
    }

    /// Whether what the state holds leaves too little memory for calls.
    fn is_full(&self) -> bool {
        self.lua.used_memory() > KEPT_BYTES_MAX
            && (self.lua.gc_collect().is_err() || self.lua.used_memory() > KEPT_BYTES_MAX)
    }

    fn run(
        &self,
        compiled: &Function,
        function: &UserFunction,
        arguments: &[Option<&[u8]>],
    ) -> mlua::Result<Value> {
        let bytes = arguments.iter().flatten().map(|bytes| bytes.len()).sum();
        self.budget.spend_bytes(bytes)?;
        self.budget.spend(CALL_STEPS)?;
        let globals = self.lua.create_table()?;
        globals.set_metatable(Some(self.globals.clone()))?;
        let mut inputs = MultiValue::with_capacity(arguments.len() + 1);
        inputs.push_back(Value::Table(globals));
        for (argument, of) in arguments.iter().zip(&function.argument_types) {
            inputs.push_back(to_lua(&self.lua, of, *argument)?);
        }
        compiled.call(inputs)
    }

    fn compiled(&mut self, function: &Arc<UserFunction>) -> mlua::Result<Function> {
        let key = Arc::as_ptr(function);
        if let Some((_, compiled)) = self.compiled.get(&key) {
            return Ok(compiled.clone());
        }
        let compiled = self.compile(function)?;
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(key, (function.clone(), compiled.clone()));
        Ok(compiled)
    }

    /// The globals of a call come as the first argument: `_ENV` is a local variable of the call, so what the code does to it ends with it.
    fn compile(&self, function: &UserFunction) -> mlua::Result<Function> {
        let mut source = "local _ENV".to_owned();
        for name in &function.argument_names {
            if !is_name(name) {
                return Err(Error::runtime(format!("'{name}' is no name of a variable in Lua")));
            }
            source += ", ";
            source += name;
        }
        source += " = ... ";
        source += &function.body;
        let chunk = self.lua.load(source).set_name(format!("={}", function.name)).set_mode(ChunkMode::Text);
        self.budget.begin();
        chunk.into_function()
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !KEYWORDS.contains(&name)
        && name != "_ENV"
}
