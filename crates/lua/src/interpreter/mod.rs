//! Lua 5.1, safe to use: the interpreter's C interface, with what it demands of its caller checked or made impossible.
//!
//! What makes it safe:
//! * Every index into the stack is checked, and there is room before anything is pushed. A function has room for some
//!   values from its beginning on; what pushes more may fail, and scripts see that as an error.
//! * Errors of Lua leave C by `longjmp`. So nothing here calls a function of Lua's that can raise one, but for those in
//!   [`native`] whose frames hold nothing that is to be dropped: tables are accessed raw, without metamethods, code runs
//!   under `lua_pcall` only, and memory is limited in a way that spares Rust ([`state`]). Finalizers, which would run
//!   at any allocation, belong to userdata alone, and scripts cannot make any.
//! * Bytes of strings are borrowed from the stack, which cannot change meanwhile.

mod extra;
mod native;
mod state;

pub use native::Guard;
pub use state::{Collector, State};

use extra::Extra;
use mlua_sys as ffi;
use std::{
    ffi::{CStr, CString, c_int, c_void},
    ptr, slice,
};

/// Slots that a reader of nested values wants to be free at each level.
const ROOM: c_int = 8;

/// Bytes of source that is compiled at most: Lua's compiler counts with numbers of 32 bits.
const SOURCE_MAX: usize = 64 << 20;

/// Bytes of an element of a table, and of a field.
const ELEMENT_SIZE: usize = 16;
const FIELD_SIZE: usize = 40;

/// A function for scripts: arguments are on the stack from index 1 on, and it returns how many results it has left on top.
pub type Function = fn(&mut Lua) -> Result<i32, Raise>;

/// A function that is called from time to time while a script runs.
pub type Hook = fn(&mut Lua) -> Result<(), Raise>;

/// An error that a function raises.
pub enum Raise {
    /// A text, to which the place in the script is added.
    Text(Vec<u8>),
    /// What is wrong with the argument of this number.
    Argument(i32, String),
    /// The value on top of the stack.
    Value,
    /// A value could not be pushed.
    Push(PushError),
}

/// Why a value cannot be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PushError {
    StackOverflow,
    NotEnoughMemory,
}

impl PushError {
    /// As Lua says it.
    pub fn text(self) -> &'static str {
        match self {
            PushError::StackOverflow => "stack overflow",
            PushError::NotEnoughMemory => "not enough memory",
        }
    }
}

impl From<PushError> for &'static str {
    fn from(error: PushError) -> &'static str {
        error.text()
    }
}

impl From<PushError> for Raise {
    fn from(error: PushError) -> Raise {
        Raise::Push(error)
    }
}

impl From<&str> for Raise {
    fn from(text: &str) -> Raise {
        Raise::Text(text.into())
    }
}

impl From<String> for Raise {
    fn from(text: String) -> Raise {
        Raise::Text(text.into())
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    None,
    Nil,
    Bool,
    Number,
    String,
    Table,
    Function,
    Other,
}

/// A value that is kept by the interpreter until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref(c_int);

/// Where a function is in a script.
pub struct Place {
    /// The name of the chunk, as it was given.
    pub source: Vec<u8>,
    /// The line, if it is known.
    pub line: Option<i32>,
    /// Whether it is a function of C or Rust.
    pub is_native: bool,
}

/// A thread of an interpreter, in Rust's turn: its stack, as the running function sees it.
pub struct Lua {
    state: *mut ffi::lua_State,
    extra: *const Extra,
    /// Number of values for which the stack has room.
    room: c_int,
}

impl Lua {
    /// # Safety
    /// `state` is a new one with this `extra`, which lives as long, and nobody else uses it while the result is in use.
    unsafe fn new(state: *mut ffi::lua_State, extra: *const Extra) -> Lua {
        Lua { state, extra, room: ffi::LUA_MINSTACK }
    }

    /// Begins Rust's turn.
    ///
    /// # Safety
    /// Lua has just called a function or hook with this state, which it does not use while the result is in use.
    unsafe fn of_call(state: *mut ffi::lua_State) -> Lua {
        let mut extra = ptr::null_mut();
        // SAFETY: `State::new` gave this pointer, which lives as long as the state. Lua has made room for the function.
        unsafe {
            ffi::lua_getallocf(state, &mut extra);
            let extra = extra.cast::<Extra>();
            (*extra).in_lua.set(false);
            Lua { state, extra, room: ffi::lua_gettop(state) + ffi::LUA_MINSTACK }
        }
    }

    fn extra(&self) -> &Extra {
        // SAFETY: it lives as long as the state.
        unsafe { &*self.extra }
    }

    /// What [`Lua::set_context`] has set.
    pub fn context(&self) -> *mut c_void {
        self.extra().context.get()
    }

    /// Keeps a pointer, which is nothing to Lua, for the functions that scripts call.
    pub fn set_context(&self, context: *mut c_void) {
        self.extra().context.set(context);
    }

    /// Number of values on the stack; the last one's index.
    pub fn top(&self) -> i32 {
        // SAFETY: any state has a top.
        unsafe { ffi::lua_gettop(self.state) }
    }

    /// Takes values off the stack.
    pub fn pop(&mut self, count: i32) {
        assert!(count >= 0 && count <= self.top());
        // SAFETY: there are so many.
        unsafe { ffi::lua_settop(self.state, -count - 1) }
    }

    /// Takes everything off the stack of the running function: its arguments may have filled it.
    pub fn clear(&mut self) {
        self.pop(self.top());
    }

    /// Makes room for a reader of nested values.
    pub fn descend(&mut self) -> Result<(), PushError> {
        self.reserve(ROOM, 0)
    }

    /// The absolute form of the index of a value that is there.
    fn index(&self, index: i32) -> c_int {
        let top = self.top();
        let absolute = if index < 0 { top + 1 + index } else { index };
        assert!(absolute >= 1 && absolute <= top, "no value at {index}");
        absolute
    }

    /// The index of a table.
    fn table(&self, index: i32) -> c_int {
        let index = self.index(index);
        assert!(self.kind(index) == Kind::Table, "not a table");
        index
    }

    /// The type of the value at an index, of which there may be none.
    pub fn kind(&self, index: i32) -> Kind {
        if index == 0 || index < -self.top() {
            return Kind::None;
        }
        // SAFETY: an index that is beyond the top has no value, which has a type of its own.
        match unsafe { ffi::lua_type(self.state, index) } {
            ffi::LUA_TNONE => Kind::None,
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Bool,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            _ => Kind::Other,
        }
    }

    /// The name of a value's type, as Lua knows it.
    pub fn kind_name(&self, index: i32) -> &'static str {
        if self.kind(index) == Kind::None {
            return "no value";
        }
        // SAFETY: the value is there, and the name is a constant.
        let name = unsafe { CStr::from_ptr(ffi::lua_typename(self.state, ffi::lua_type(self.state, index))) };
        name.to_str().unwrap_or_default()
    }

    /// The truth of a value.
    pub fn truth(&self, index: i32) -> bool {
        // SAFETY: the index is checked.
        unsafe { ffi::lua_toboolean(self.state, self.index(index)) != 0 }
    }

    /// A value that is a number, or a string that reads as one.
    pub fn number(&self, index: i32) -> Option<f64> {
        match self.kind(index) {
            // SAFETY: the value is there.
            Kind::Number => Some(unsafe { ffi::lua_tonumber(self.state, index) }),
            // SAFETY: the value is there, and it stays the string that it is.
            Kind::String => unsafe {
                (ffi::lua_isnumber(self.state, index) != 0).then(|| ffi::lua_tonumber(self.state, index))
            },
            _ => None,
        }
    }

    /// A value that is a string.
    pub fn bytes(&self, index: i32) -> Option<&[u8]> {
        if self.kind(index) != Kind::String {
            return None;
        }
        let mut len = 0;
        // SAFETY: the value is a string, so that it is not converted; it is on the stack, which stays as it is while the
        // result is borrowed.
        unsafe {
            let bytes = ffi::lua_tolstring(self.state, index, &mut len);
            Some(slice::from_raw_parts(bytes.cast(), len))
        }
    }

    /// The text of a string, or of a number as Lua writes it.
    pub fn text(&self, index: i32) -> Option<Vec<u8>> {
        match self.kind(index) {
            Kind::Number => self.number(index).map(|number| crate::number::to_lua_text(number).into_bytes()),
            _ => self.bytes(index).map(<[u8]>::to_vec),
        }
    }

    /// Pushes nil.
    pub fn push_nil(&mut self) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.state) }
        Ok(())
    }

    /// Pushes a truth value.
    pub fn push_bool(&mut self, value: bool) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.state, value.into()) }
        Ok(())
    }

    /// Pushes a number.
    pub fn push_number(&mut self, value: f64) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.state, value) }
        Ok(())
    }

    /// Pushes a string.
    pub fn push_bytes(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), PushError> {
        let bytes = bytes.as_ref();
        self.check_memory(bytes.len())?;
        self.push_unlimited(bytes)
    }

    /// Pushes a string, whatever memory there is.
    fn push_unlimited(&mut self, bytes: &[u8]) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room, and the bytes are copied.
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
        Ok(())
    }

    /// Pushes a light userdata that is a null pointer.
    pub fn push_null_pointer(&mut self) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut()) }
        Ok(())
    }

    /// Whether a value is what [`Lua::push_null_pointer`] pushes.
    pub fn is_null_pointer(&self, index: i32) -> bool {
        self.kind(index) == Kind::Other
            // SAFETY: the value is there.
            && unsafe { ffi::lua_type(self.state, index) == ffi::LUA_TLIGHTUSERDATA }
            // SAFETY: as before.
            && unsafe { ffi::lua_touserdata(self.state, index) }.is_null()
    }

    /// Pushes a new table with room for so many elements and fields.
    pub fn push_table(&mut self, elements: usize, fields: usize) -> Result<(), PushError> {
        self.reserve(
            1,
            elements.saturating_mul(ELEMENT_SIZE).saturating_add(fields.saturating_mul(FIELD_SIZE)),
        )?;
        // SAFETY: there is room; so many are as many as there is memory for, and so Lua can count them.
        unsafe { ffi::lua_createtable(self.state, elements as c_int, fields as c_int) }
        Ok(())
    }

    /// Pushes a copy of a value.
    pub fn push_copy(&mut self, index: i32) -> Result<(), PushError> {
        let index = self.index(index);
        self.reserve_slots(1)?;
        // SAFETY: there is room, and the index is checked.
        unsafe { ffi::lua_pushvalue(self.state, index) }
        Ok(())
    }

    /// Pushes a function.
    pub fn push_function(&mut self, function: Function) -> Result<(), PushError> {
        self.push_closure(function, 0)
    }

    /// Moves the value on top to an index.
    pub fn insert(&mut self, index: i32) {
        let index = self.index(index);
        // SAFETY: the index is checked.
        unsafe { ffi::lua_insert(self.state, index) }
    }

    /// Takes a value out of the stack.
    pub fn remove(&mut self, index: i32) {
        let index = self.index(index);
        // SAFETY: the index is checked.
        unsafe { ffi::lua_remove(self.state, index) }
    }

    /// Replaces the key on top by its value in a table.
    pub fn raw_get(&mut self, table: i32) {
        let table = self.table(table);
        // SAFETY: it is a table, and there is a key.
        unsafe { ffi::lua_rawget_(self.state, table) }
    }

    /// Pushes a field of a table.
    pub fn get_field(&mut self, table: i32, name: &str) -> Result<(), PushError> {
        let table = self.table(table);
        self.push_unlimited(name.as_bytes())?;
        self.raw_get(table);
        Ok(())
    }

    /// Pushes an element of a table.
    pub fn get_element(&mut self, table: i32, number: i32) -> Result<(), PushError> {
        self.get_elements(table, number, 1)
    }

    /// Pushes so many elements of a table, from one on.
    pub fn get_elements(&mut self, table: i32, first: i32, count: i32) -> Result<(), PushError> {
        let table = self.table(table);
        self.reserve_slots(count)?;
        for offset in 0..count {
            // SAFETY: it is a table, and there is room.
            unsafe { ffi::lua_rawgeti_(self.state, table, first + offset) }
        }
        Ok(())
    }

    /// The length of a table, as Lua counts it.
    pub fn table_len(&self, table: i32) -> usize {
        // SAFETY: it is a table.
        unsafe { ffi::lua_objlen(self.state, self.table(table)) }
    }

    /// Makes the value on top the value of the key below it, and takes both off. The key must not be nil or not a number.
    pub fn raw_set(&mut self, table: i32) -> Result<(), PushError> {
        self.check_memory(0)?;
        let table = self.table(table);
        let is_key = match self.kind(-2) {
            Kind::None | Kind::Nil => false,
            Kind::Number => self.number(-2).is_some_and(|number| !number.is_nan()),
            _ => true,
        };
        assert!(is_key, "not a key");
        // SAFETY: it is a table, and there are a key that is fit for one and a value.
        unsafe { ffi::lua_rawset(self.state, table) }
        Ok(())
    }

    /// Makes the value on top a field of a table, and takes it off.
    pub fn set_field(&mut self, table: i32, name: &str) -> Result<(), PushError> {
        let table = self.table(table);
        self.push_bytes(name)?;
        self.insert(-2);
        self.raw_set(table)
    }

    /// The same for a field that the table has, which takes no memory.
    pub fn replace_field(&mut self, table: i32, name: &str) -> Result<(), PushError> {
        let table = self.table(table);
        self.push_unlimited(name.as_bytes())?;
        self.insert(-2);
        self.index(-2);
        // SAFETY: it is a table, and there are a key that is fit for one and a value.
        unsafe { ffi::lua_rawset(self.state, table) }
        Ok(())
    }

    /// Makes the value on top an element of a table, and takes it off.
    pub fn set_element(&mut self, table: i32, number: i32) -> Result<(), PushError> {
        self.check_memory(0)?;
        let table = self.table(table);
        self.index(-1);
        // SAFETY: it is a table, and there is a value.
        unsafe { ffi::lua_rawseti_(self.state, table, number) }
        Ok(())
    }

    /// Replaces the key on top by the next one of a table and its value, or takes it off: there is none. The first key
    /// comes after nil. False too if the key is not in the table.
    pub fn next(&mut self, table: i32) -> Result<bool, PushError> {
        let table = self.table(table);
        self.index(-1);
        self.reserve_slots(1)?;
        if self.kind(-1) != Kind::Nil {
            self.push_copy(-1)?;
            self.raw_get(table);
            let known = self.kind(-1) != Kind::Nil;
            self.pop(1);
            if !known {
                self.pop(1);
                return Ok(false);
            }
        }
        // SAFETY: it is a table, there is a key, which is in it or nil, and there is room.
        Ok(unsafe { ffi::lua_next(self.state, table) != 0 })
    }

    /// Makes the table on top, or nil, the metatable of a table, and takes it off.
    pub fn set_metatable(&mut self, table: i32) {
        let table = self.table(table);
        assert!(self.kind(-1) == Kind::Nil || self.kind(-1) == Kind::Table);
        // SAFETY: a table, and a table or nil.
        unsafe { ffi::lua_setmetatable(self.state, table) };
    }

    /// Pushes the metatable of a value, if it has one.
    pub fn get_metatable(&mut self, index: i32) -> Result<bool, PushError> {
        let index = self.index(index);
        self.reserve_slots(1)?;
        // SAFETY: the index is checked, and there is room.
        Ok(unsafe { ffi::lua_getmetatable(self.state, index) != 0 })
    }

    /// Pushes the table of globals of this thread.
    pub fn push_globals(&mut self) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_pushvalue(self.state, ffi::LUA_GLOBALSINDEX) }
        Ok(())
    }

    /// Makes the table on top the table of globals of this thread, and takes it off.
    pub fn set_globals(&mut self) {
        self.table(-1);
        // SAFETY: it is a table.
        unsafe { ffi::lua_replace(self.state, ffi::LUA_GLOBALSINDEX) }
    }

    /// Keeps the value on top, and takes it off.
    pub fn keep(&mut self) -> Ref {
        self.index(-1);
        // SAFETY: there is a value.
        Ref(unsafe { ffi::luaL_ref(self.state, ffi::LUA_REGISTRYINDEX) })
    }

    /// Pushes a value that is kept.
    pub fn push_ref(&mut self, kept: Ref) -> Result<(), PushError> {
        self.reserve_slots(1)?;
        // SAFETY: there is room.
        unsafe { ffi::lua_rawgeti_(self.state, ffi::LUA_REGISTRYINDEX, kept.0) }
        Ok(())
    }

    /// Forgets a value that was kept.
    pub fn forget(&mut self, kept: Ref) {
        // SAFETY: a reference that is none is nothing to it.
        unsafe { ffi::luaL_unref(self.state, ffi::LUA_REGISTRYINDEX, kept.0) }
    }

    /// Opens Lua's own libraries that Redis opens, all of them in the table of globals.
    pub fn open_libraries(&mut self) -> Result<(), PushError> {
        let openers: [(_, ffi::lua_CFunction); 5] = [
            (c"", ffi::luaopen_base),
            (c"table", ffi::luaopen_table),
            (c"string", ffi::luaopen_string),
            (c"math", ffi::luaopen_math),
            (c"os", ffi::luaopen_os),
        ];
        for (name, open) in openers {
            self.reserve_slots(2)?;
            // SAFETY: there is room, and these are functions of Lua's that open a library under a name.
            let status = unsafe {
                ffi::lua_pushcclosure(self.state, open, 0);
                ffi::lua_pushstring_(self.state, name.as_ptr());
                ffi::lua_pcall(self.state, 1, 0, 0)
            };
            assert!(status == 0, "Lua's own libraries open");
        }
        Ok(())
    }

    /// Compiles source, and pushes a function, or what is wrong with it. Lua's bytecode, which could break the
    /// interpreter, is not source.
    pub fn load(&mut self, source: &[u8], name: &str) -> Result<bool, PushError> {
        let wrong = match source {
            [0x1B, ..] => Some("bytecode is not allowed"),
            _ if source.len() > SOURCE_MAX => Some("the source is too long"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.push_bytes(format!("{}: {wrong}", name.trim_start_matches(['@', '='])))?;
            return Ok(false);
        }
        let name = CString::new(name.replace('\0', "")).expect("no zero is left");
        self.reserve_slots(2)?;
        // Lua's compiler does not keep the name from the collector until it needs it no more; the stack does.
        self.push_bytes(name.as_bytes())?;
        let (bytes, len) = (source.as_ptr().cast(), source.len());
        // SAFETY: there is room, the source is what it is said to be, and errors are caught.
        let status = self.in_lua(|state| unsafe { ffi::luaL_loadbuffer(state, bytes, len, name.as_ptr()) });
        self.remove(-2);
        Ok(status == 0)
    }

    /// Calls the function below so many arguments; `Ok(true)`: its results are in its place, as many as asked for (`None`:
    /// all). `Ok(false)`: the error is. `handler` is the index of a function that makes another error of an error, where that
    /// was raised.
    pub fn call(&mut self, args: i32, results: Option<i32>, handler: Option<i32>) -> Result<bool, PushError> {
        assert!(args >= 0 && args < self.top(), "a function and its arguments");
        let handler = handler.map_or(0, |handler| self.index(handler));
        self.reserve_slots(results.unwrap_or(1))?;
        let results = results.unwrap_or(ffi::LUA_MULTRET);
        // SAFETY: a function and its arguments are there, there is room for the results, and errors are caught.
        Ok(self.in_lua(|state| unsafe { ffi::lua_pcall(state, args, results, handler) }) == 0)
    }

    /// Gives Lua its turn for a function that catches all errors.
    fn in_lua(&mut self, f: impl FnOnce(*mut ffi::lua_State) -> c_int) -> c_int {
        self.extra().in_lua.set(true);
        let status = f(self.state);
        self.extra().in_lua.set(false);
        status
    }

    /// The function at a level of the calls in progress: 0 is the one that runs.
    pub fn place(&self, level: i32) -> Option<Place> {
        // SAFETY: zeroes are a valid record, which is filled for a level that is there; its texts are copied at once.
        unsafe {
            let mut record: ffi::lua_Debug = std::mem::zeroed();
            if ffi::lua_getstack(self.state, level, &mut record) == 0 {
                return None;
            }
            ffi::lua_getinfo(self.state, c"Sl".as_ptr(), &mut record);
            Some(Place {
                source: CStr::from_ptr(record.source).to_bytes().to_vec(),
                line: (record.currentline > 0).then_some(record.currentline),
                is_native: *record.what as u8 == b'C',
            })
        }
    }

    /// Has a function called after each so many instructions; what it raises, the script raises. After `every_line` it is
    /// called at each line, so that no script can catch the error and go on.
    pub fn set_hook(&mut self, hook: Hook, instructions: i32, every_line: bool) {
        self.extra().hook.set(Some(hook));
        let mask = if every_line { ffi::LUA_MASKLINE | ffi::LUA_MASKCOUNT } else { ffi::LUA_MASKCOUNT };
        // SAFETY: `native::hook` may be called at any time.
        unsafe { ffi::lua_sethook(self.state, Some(native::hook), mask, instructions) };
    }

    /// Has it called no more.
    pub fn clear_hook(&mut self) {
        self.extra().hook.set(None);
        // SAFETY: there may be no hook.
        unsafe { ffi::lua_sethook(self.state, None, 0, 0) };
    }
}
