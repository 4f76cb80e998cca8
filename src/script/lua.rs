//! Lua 5.1, safe to use: the interpreter's C interface, with what it demands of its caller checked or made impossible.
//!
//! What makes it safe:
//! * Every index into the stack is checked, and there is room before anything is pushed.
//! * Errors of Lua leave C by `longjmp`. So nothing here calls a function of Lua's that can raise one, but for
//!   [`trampoline`], whose frame holds nothing that is to be dropped: tables are accessed raw, without metamethods,
//!   code runs under `lua_pcall` only, and without memory the process ends, as everywhere in Rust. Finalizers, which
//!   would run at any allocation, belong to userdata alone, and scripts cannot make any.
//! * Bytes of strings are borrowed from the stack, which cannot change meanwhile.

use mlua_sys as ffi;
use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_void},
    marker::PhantomData,
    ptr, slice,
};

/// Slots that a reader of nested values wants to be free at each level.
const ROOM: c_int = 8;

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

/// What a state carries beside Lua's own: the other end of the allocator's pointer.
#[derive(Default)]
struct Extra {
    used: Cell<usize>,
    context: Cell<*mut c_void>,
    hook: Cell<Option<Hook>>,
}

/// An interpreter.
pub struct State {
    main: *mut ffi::lua_State,
    extra: *mut Extra,
}

impl State {
    /// A new one without any library.
    pub fn new() -> State {
        let extra = Box::into_raw(Box::<Extra>::default());
        // SAFETY: the allocator is one, and its pointer lives until `drop` has closed the state.
        let main = unsafe { ffi::lua_newstate(allocate, extra.cast()) };
        assert!(!main.is_null(), "no memory for an interpreter");
        State { main, extra }
    }

    /// Its main thread.
    pub fn lua(&mut self) -> &mut Lua {
        // SAFETY: `Lua` is what the pointer points to, and nobody else uses it while `self` is borrowed.
        unsafe { Lua::at(&mut self.main) }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        // SAFETY: it lives as long as `self`.
        unsafe { &*self.extra }.used.get()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: nobody uses the state any more, and the state was the last to use `extra`.
        unsafe {
            ffi::lua_close(self.main);
            drop(Box::from_raw(self.extra));
        }
    }
}

unsafe extern "C" fn allocate(extra: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: `State::new` gave this pointer, which lives as long as the state.
    let extra = unsafe { &*extra.cast::<Extra>() };
    extra.used.set((extra.used.get() + new).wrapping_sub(old));
    // SAFETY: the block, if any, came from `realloc`.
    unsafe {
        if new == 0 {
            libc::free(block);
            return ptr::null_mut();
        }
        let block = libc::realloc(block, new);
        if block.is_null() {
            std::process::abort();
        }
        block
    }
}

/// A thread of an interpreter: its stack.
#[repr(transparent)]
pub struct Lua {
    state: *mut ffi::lua_State,
    _not_sync: PhantomData<*mut ()>,
}

impl Lua {
    /// # Safety
    /// The pointer is a state's, and nobody else uses that while the result lives.
    unsafe fn at(state: &mut *mut ffi::lua_State) -> &mut Lua {
        // SAFETY: the layout is that of the pointer.
        unsafe { &mut *ptr::from_mut(state).cast::<Lua>() }
    }

    fn extra(&self) -> &Extra {
        let mut extra = ptr::null_mut();
        // SAFETY: `State::new` gave this pointer, which lives as long as the state.
        unsafe {
            ffi::lua_getallocf(self.state, &mut extra);
            &*extra.cast::<Extra>()
        }
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

    /// Makes room for a reader of nested values; false: they are too many.
    pub fn has_room(&mut self) -> bool {
        // SAFETY: it only makes room.
        unsafe { ffi::lua_checkstack(self.state, ROOM) != 0 }
    }

    /// Makes room for one value.
    fn room(&mut self) {
        // SAFETY: it only makes room.
        assert!(unsafe { ffi::lua_checkstack(self.state, 3) } != 0, "the stack of a script is full");
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
            Kind::Number => self.number(index).map(|number| super::number::to_lua_text(number).into_bytes()),
            _ => self.bytes(index).map(<[u8]>::to_vec),
        }
    }

    /// Pushes nil.
    pub fn push_nil(&mut self) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.state) }
    }

    /// Pushes a truth value.
    pub fn push_bool(&mut self, value: bool) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.state, value.into()) }
    }

    /// Pushes a number.
    pub fn push_number(&mut self, value: f64) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    /// Pushes a string.
    pub fn push_bytes(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.room();
        // SAFETY: there is room, and the bytes are copied.
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Pushes a light userdata that is a null pointer.
    pub fn push_null_pointer(&mut self) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut()) }
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
    pub fn push_table(&mut self, elements: usize, fields: usize) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_createtable(self.state, elements as c_int, fields as c_int) }
    }

    /// Pushes a copy of a value.
    pub fn push_copy(&mut self, index: i32) {
        let index = self.index(index);
        self.room();
        // SAFETY: there is room, and the index is checked.
        unsafe { ffi::lua_pushvalue(self.state, index) }
    }

    /// Pushes a function.
    pub fn push_function(&mut self, function: Function) {
        self.push_closure(function, 0);
    }

    /// Pushes a function that keeps so many values, which are taken off the stack; see [`Lua::push_kept`].
    pub fn push_closure(&mut self, function: Function, kept: i32) {
        assert!(kept >= 0 && kept <= self.top());
        self.room();
        // SAFETY: there is room, and `trampoline` takes this upvalue for what it is.
        unsafe {
            ffi::lua_pushlightuserdata(self.state, function as *mut c_void);
            ffi::lua_insert(self.state, -1 - kept);
            ffi::lua_pushcclosure(self.state, trampoline, kept + 1);
        }
    }

    /// Pushes what the running function keeps, by its number from 1 on. For functions of [`Lua::push_closure`] only.
    pub fn push_kept(&mut self, number: i32) {
        self.room();
        // SAFETY: an upvalue that is not there is none, and `trampoline` has at least its own.
        unsafe { ffi::lua_pushvalue(self.state, ffi::lua_upvalueindex(number + 1)) }
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
    pub fn get_field(&mut self, table: i32, name: &str) {
        let table = self.table(table);
        self.push_bytes(name);
        self.raw_get(table);
    }

    /// Pushes an element of a table.
    pub fn get_element(&mut self, table: i32, number: i32) {
        let table = self.table(table);
        self.room();
        // SAFETY: it is a table, and there is room.
        unsafe { ffi::lua_rawgeti_(self.state, table, number) }
    }

    /// Makes the value on top the value of the key below it, and takes both off. The key must not be nil or not a number.
    pub fn raw_set(&mut self, table: i32) {
        let table = self.table(table);
        let is_key = match self.kind(-2) {
            Kind::None | Kind::Nil => false,
            Kind::Number => self.number(-2).is_some_and(|number| !number.is_nan()),
            _ => true,
        };
        assert!(is_key, "not a key");
        // SAFETY: it is a table, and there are a key that is fit for one and a value.
        unsafe { ffi::lua_rawset(self.state, table) }
    }

    /// Makes the value on top a field of a table, and takes it off.
    pub fn set_field(&mut self, table: i32, name: &str) {
        let table = self.table(table);
        self.push_bytes(name);
        self.insert(-2);
        self.raw_set(table);
    }

    /// Makes the value on top an element of a table, and takes it off.
    pub fn set_element(&mut self, table: i32, number: i32) {
        let table = self.table(table);
        self.index(-1);
        // SAFETY: it is a table, and there is a value.
        unsafe { ffi::lua_rawseti_(self.state, table, number) }
    }

    /// Replaces the key on top by the next one of a table and its value, or takes it off: there is none. The first key
    /// comes after nil. False too if the key is not in the table.
    pub fn next(&mut self, table: i32) -> bool {
        let table = self.table(table);
        self.index(-1);
        self.room();
        if self.kind(-1) != Kind::Nil {
            self.push_copy(-1);
            self.raw_get(table);
            let known = self.kind(-1) != Kind::Nil;
            self.pop(1);
            if !known {
                self.pop(1);
                return false;
            }
        }
        // SAFETY: it is a table, there is a key, which is in it or nil, and there is room.
        unsafe { ffi::lua_next(self.state, table) != 0 }
    }

    /// Makes the table on top, or nil, the metatable of a table, and takes it off.
    pub fn set_metatable(&mut self, table: i32) {
        let table = self.table(table);
        assert!(self.kind(-1) == Kind::Nil || self.kind(-1) == Kind::Table);
        // SAFETY: a table, and a table or nil.
        unsafe { ffi::lua_setmetatable(self.state, table) };
    }

    /// Pushes the metatable of a value, if it has one.
    pub fn get_metatable(&mut self, index: i32) -> bool {
        let index = self.index(index);
        self.room();
        // SAFETY: the index is checked, and there is room.
        unsafe { ffi::lua_getmetatable(self.state, index) != 0 }
    }

    /// Pushes the table of globals of this thread.
    pub fn push_globals(&mut self) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushvalue(self.state, ffi::LUA_GLOBALSINDEX) }
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
    pub fn push_ref(&mut self, kept: Ref) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_rawgeti_(self.state, ffi::LUA_REGISTRYINDEX, kept.0) }
    }

    /// Forgets a value that was kept.
    pub fn forget(&mut self, kept: Ref) {
        // SAFETY: a reference that is none is nothing to it.
        unsafe { ffi::luaL_unref(self.state, ffi::LUA_REGISTRYINDEX, kept.0) }
    }

    /// Opens Lua's own libraries that Redis opens, all of them in the table of globals.
    pub fn open_libraries(&mut self) {
        let openers: [(_, ffi::lua_CFunction); 5] = [
            (c"", ffi::luaopen_base),
            (c"table", ffi::luaopen_table),
            (c"string", ffi::luaopen_string),
            (c"math", ffi::luaopen_math),
            (c"os", ffi::luaopen_os),
        ];
        for (name, open) in openers {
            self.room();
            // SAFETY: there is room, and these are functions of Lua's that open a library under a name.
            let status = unsafe {
                ffi::lua_pushcclosure(self.state, open, 0);
                ffi::lua_pushstring_(self.state, name.as_ptr());
                ffi::lua_pcall(self.state, 1, 0, 0)
            };
            assert!(status == 0, "Lua's own libraries open");
        }
    }

    /// Compiles source, and pushes a function, or what is wrong with it. Lua's bytecode, which could break the
    /// interpreter, is not source.
    pub fn load(&mut self, source: &[u8], name: &str) -> bool {
        if source.first() == Some(&0x1B) {
            self.push_bytes(format!("{}: bytecode is not allowed", name.trim_start_matches(['@', '='])));
            return false;
        }
        let name = std::ffi::CString::new(name.replace('\0', "")).expect("no zero is left");
        self.room();
        // SAFETY: there is room, the source is what it is said to be, and errors are caught.
        unsafe { ffi::luaL_loadbuffer(self.state, source.as_ptr().cast(), source.len(), name.as_ptr()) == 0 }
    }

    /// Calls the function below so many arguments; `Ok`: its results are in its place, as many as asked for (`None`: all).
    /// `Err`: the error is. `handler` is the index of a function that makes another error of an error, where that was
    /// raised.
    pub fn call(&mut self, args: i32, results: Option<i32>, handler: Option<i32>) -> Result<(), ()> {
        assert!(args >= 0 && args < self.top(), "a function and its arguments");
        let handler = handler.map_or(0, |handler| self.index(handler));
        self.room();
        let results = match results {
            Some(results) => {
                // SAFETY: it only makes room.
                assert!(unsafe { ffi::lua_checkstack(self.state, results) } != 0);
                results
            }
            None => ffi::LUA_MULTRET,
        };
        // SAFETY: a function and its arguments are there, and errors are caught.
        match unsafe { ffi::lua_pcall(self.state, args, results, handler) } {
            0 => Ok(()),
            _ => Err(()),
        }
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
        // SAFETY: `hook_trampoline` may be called at any time.
        unsafe { ffi::lua_sethook(self.state, Some(hook_trampoline), mask, instructions) };
    }

    /// Has it called no more.
    pub fn clear_hook(&mut self) {
        // SAFETY: there may be no hook.
        unsafe { ffi::lua_sethook(self.state, None, 0, 0) };
    }

    /// Leaves on top what `trampoline` is to raise.
    fn raise(&mut self, raise: Raise) -> c_int {
        match raise {
            Raise::Value => {
                self.index(-1);
                RAISE
            }
            Raise::Argument(number, text) => {
                self.clear();
                self.push_bytes(text);
                RAISE - 1 - number
            }
            Raise::Text(text) => {
                self.clear();
                self.room();
                // SAFETY: there is room, and texts are joined without metamethods.
                unsafe {
                    ffi::luaL_where(self.state, 1);
                    self.push_bytes(text);
                    ffi::lua_concat(self.state, 2);
                }
                RAISE
            }
        }
    }
}

/// What says that the value on top is to be raised. Below that, by one and the number of an argument: it is about that.
const RAISE: c_int = -1;

/// Calls the function that is its first upvalue. Nothing here is to be dropped when an error leaves.
unsafe extern "C-unwind" fn trampoline(state: *mut ffi::lua_State) -> c_int {
    let results = enter(state);
    if results >= 0 {
        return results;
    }
    // SAFETY: all frames of Rust have ended but this one, which holds nothing; the error is on the stack.
    unsafe {
        if results < RAISE {
            let text: *const c_char = ffi::lua_tolstring(state, -1, ptr::null_mut());
            return ffi::luaL_argerror(state, RAISE - 1 - results, text);
        }
        ffi::lua_error(state)
    }
}

fn enter(mut state: *mut ffi::lua_State) -> c_int {
    // SAFETY: only `push_closure` makes closures of `trampoline`, with a function as the first upvalue.
    let function = unsafe {
        let pointer = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1));
        std::mem::transmute::<*mut c_void, Function>(pointer)
    };
    // SAFETY: Lua has called with its state, which it does not use meanwhile.
    let lua = unsafe { Lua::at(&mut state) };
    match function(lua) {
        Ok(results) => {
            assert!(results >= 0 && results <= lua.top());
            results
        }
        Err(raise) => lua.raise(raise),
    }
}

unsafe extern "C-unwind" fn hook_trampoline(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    if enter_hook(state) < 0 {
        // SAFETY: as in `trampoline`.
        unsafe { ffi::lua_error(state) }
    }
}

fn enter_hook(mut state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called with its state, which it does not use meanwhile.
    let lua = unsafe { Lua::at(&mut state) };
    let Some(hook) = lua.extra().hook.get() else { return 0 };
    match hook(lua) {
        Ok(()) => 0,
        Err(raise) => lua.raise(raise).max(RAISE),
    }
}
