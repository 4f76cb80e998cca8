//! The ways between Lua's code and functions of Rust. Each says whose turn it is (see [`super::state`]), and what an error
//! leaves by `longjmp` holds nothing that is to be dropped.

use super::{Function, Lua, PushError, Raise, extra::Extra};
use mlua_sys as ffi;
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

/// What says that the value on top is to be raised. Below that, by one and the number of an argument: it is about that.
const RAISE: c_int = -1;

/// Where a guarded function of Lua's own keeps a value of its own or its guard's, itself, and its guard.
const KEPT: c_int = 1;
const ORIGINAL: c_int = 2;
const GUARD: c_int = 3;

/// What a function does before one of Lua's own is called in its place, with the same arguments: its error is raised
/// instead. It must leave the stack as it is.
pub type Guard = fn(&mut Lua) -> Result<(), Raise>;

impl Lua {
    /// Pushes a function that keeps so many values, which are taken off the stack; see [`Lua::push_kept`].
    pub fn push_closure(&mut self, function: Function, kept: i32) -> Result<(), PushError> {
        assert!(kept >= 0 && kept <= self.top());
        self.reserve(1, 0)?;
        // SAFETY: there is room, and `trampoline` takes this upvalue for what it is.
        unsafe {
            ffi::lua_pushlightuserdata(self.state, function as *mut c_void);
            ffi::lua_insert(self.state, -1 - kept);
            ffi::lua_pushcclosure(self.state, trampoline, kept + 1);
        }
        Ok(())
    }

    /// Pushes what the running function keeps, by its number from 1 on. For functions of [`Lua::push_closure`] only.
    pub fn push_kept(&mut self, number: i32) -> Result<(), PushError> {
        self.reserve(1, 0)?;
        // SAFETY: an upvalue that is not there is none, and `trampoline` has at least its own.
        unsafe { ffi::lua_pushvalue(self.state, ffi::lua_upvalueindex(number + 1)) }
        Ok(())
    }

    /// Makes of one of Lua's own functions, below the value on top, one with a guard, for which the value is kept: see
    /// [`Lua::push_guarded`]. Takes both off.
    pub fn guard(&mut self, guard: Guard) -> Result<(), PushError> {
        self.reserve(2, 0)?;
        let function = self.index(-2);
        // SAFETY: there are two values, and room; `guarded` takes the upvalues for what they are.
        unsafe {
            let original = ffi::lua_tocfunction(self.state, function).expect("a function of Lua's own");
            ffi::lua_pushlightuserdata(self.state, original as *mut c_void);
            ffi::lua_pushlightuserdata(self.state, guard as *mut c_void);
            ffi::lua_pushcclosure(self.state, guarded, 3);
            ffi::lua_remove(self.state, function);
        }
        Ok(())
    }

    /// Pushes the value that was kept for the running guard.
    pub fn push_guarded(&mut self) -> Result<(), PushError> {
        self.reserve(1, 0)?;
        // SAFETY: `guarded` has this upvalue.
        unsafe { ffi::lua_pushvalue(self.state, ffi::lua_upvalueindex(KEPT)) }
        Ok(())
    }

    /// Guards `coroutine.resume`, which is on top of the stack.
    pub fn guard_resume(&mut self) -> Result<(), PushError> {
        self.push_nil()?;
        self.guard(|lua| {
            lua.make_resumable(1, lua.top());
            Ok(())
        })
    }

    /// Guards what `coroutine.wrap`, which is on top of the stack, makes.
    pub fn guard_wrap(&mut self) {
        self.index(-1);
        // SAFETY: there is a value; `wrap` takes the upvalue for what it is.
        unsafe {
            let original = ffi::lua_tocfunction(self.state, -1).expect("a function of Lua's own");
            ffi::lua_pushlightuserdata(self.state, original as *mut c_void);
            ffi::lua_remove(self.state, -2);
            ffi::lua_pushcclosure(self.state, wrap, 1);
        }
    }

    /// Makes room in a coroutine for what it is given when it goes on: Lua does that where nobody would catch an error.
    fn make_resumable(&mut self, coroutine: c_int, values: c_int) {
        // SAFETY: what is no thread gives a null pointer; making room for a thread that does not run harms nothing.
        unsafe {
            let thread = ffi::lua_tothread(self.state, coroutine);
            if !thread.is_null() {
                ffi::lua_checkstack(thread, values);
            }
        }
    }

    /// Leaves on top what `trampoline` is to raise.
    fn raise(&mut self, raise: Raise) -> c_int {
        let full = "an empty stack has room";
        match raise {
            Raise::Value => {
                self.index(-1);
                RAISE
            }
            Raise::Argument(number, text) => {
                self.clear();
                self.push_unlimited(text.as_bytes()).expect(full);
                RAISE - 1 - number
            }
            Raise::Push(PushError::NotEnoughMemory) => {
                self.clear();
                self.push_unlimited(PushError::NotEnoughMemory.text().as_bytes()).expect(full);
                RAISE
            }
            Raise::Push(error @ PushError::StackOverflow) => self.raise(error.text().into()),
            Raise::Text(text) => {
                self.clear();
                self.reserve_slots(2).expect(full);
                // SAFETY: there is room, and texts are joined without metamethods.
                unsafe {
                    ffi::luaL_where(self.state, 1);
                    self.push_unlimited(&text).expect(full);
                    ffi::lua_concat(self.state, 2);
                }
                RAISE
            }
        }
    }
}

/// Lua's turn begins: what fails from here on is left by `longjmp`.
fn begin_lua(extra: &Extra) {
    extra.in_lua.set(true);
}

/// Calls the function that is its first upvalue. Nothing here is to be dropped when an error leaves.
unsafe extern "C-unwind" fn trampoline(state: *mut ffi::lua_State) -> c_int {
    let results = enter(state);
    if results < 0 {
        // SAFETY: all frames of Rust have ended but this one, which holds nothing; the error is on the stack.
        unsafe { raise(state, results) }
    }
    results
}

/// Raises the error on top of the stack, of which `what` says more.
///
/// # Safety
/// It leaves by `longjmp`: the frames of Rust up to Lua's hold nothing that is to be dropped.
unsafe extern "C-unwind" fn raise(state: *mut ffi::lua_State, what: c_int) {
    // SAFETY: the value on top is a text if the error is about an argument; the rest is the caller's.
    unsafe {
        if what < RAISE {
            let text: *const c_char = ffi::lua_tolstring(state, -1, ptr::null_mut());
            ffi::luaL_argerror(state, RAISE - 1 - what, text);
        }
        ffi::lua_error(state)
    }
}

fn enter(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: only `push_closure` makes closures of `trampoline`, with a function as the first upvalue. Lua has called
    // with its state, which it does not use meanwhile.
    let (mut lua, function) = unsafe {
        let pointer = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1));
        (Lua::of_call(state), std::mem::transmute::<*mut c_void, Function>(pointer))
    };
    let results = match function(&mut lua) {
        Ok(results) => {
            assert!(results >= 0 && results <= lua.top());
            results
        }
        Err(raise) => lua.raise(raise),
    };
    begin_lua(lua.extra());
    results
}

/// Calls a function of Lua's own, unless its guard raises an error. Both see the same arguments.
unsafe extern "C-unwind" fn guarded(state: *mut ffi::lua_State) -> c_int {
    let raised = enter_guard(state);
    if raised < 0 {
        // SAFETY: as in `trampoline`.
        unsafe { raise(state, raised) }
    }
    // SAFETY: only `guard` and `wrap` make closures of `guarded`, with such a function as this upvalue. It is called
    // as Lua calls it, and nothing here is to be dropped.
    unsafe {
        let pointer = ffi::lua_touserdata(state, ffi::lua_upvalueindex(ORIGINAL));
        std::mem::transmute::<*mut c_void, ffi::lua_CFunction>(pointer)(state)
    }
}

fn enter_guard(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as in `enter`, with the guard as this upvalue.
    let (mut lua, guard) = unsafe {
        let pointer = ffi::lua_touserdata(state, ffi::lua_upvalueindex(GUARD));
        (Lua::of_call(state), std::mem::transmute::<*mut c_void, Guard>(pointer))
    };
    let raised = match guard(&mut lua) {
        Ok(()) => 0,
        Err(raise) => lua.raise(raise),
    };
    begin_lua(lua.extra());
    raised
}

/// `coroutine.wrap`, whose results are guarded as `coroutine.resume` is.
unsafe extern "C-unwind" fn wrap(state: *mut ffi::lua_State) -> c_int {
    let guard: Guard = |lua| {
        lua.make_resumable(ffi::lua_upvalueindex(KEPT), lua.top());
        Ok(())
    };
    // SAFETY: `guard_wrap` has made `coroutine.wrap` this upvalue. It returns a function with one upvalue, the coroutine,
    // which is the first one here, too. A function has room for some more values, and nothing here is to be dropped.
    unsafe {
        let pointer = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1));
        std::mem::transmute::<*mut c_void, ffi::lua_CFunction>(pointer)(state);
        ffi::lua_getupvalue(state, -1, 1);
        let original = ffi::lua_tocfunction(state, -2).map_or(ptr::null_mut(), |f| f as *mut c_void);
        ffi::lua_pushlightuserdata(state, original);
        ffi::lua_pushlightuserdata(state, guard as *mut c_void);
        ffi::lua_pushcclosure(state, guarded, 3);
    }
    1
}

/// Is called while scripts run.
pub unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    let raised = enter_hook(state);
    if raised < 0 {
        // SAFETY: as in `trampoline`.
        unsafe { raise(state, raised) }
    }
}

fn enter_hook(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua has called with its state, which it does not use meanwhile. A hook has as much room as a function.
    let mut lua = unsafe { Lua::of_call(state) };
    let raised = match lua.run_hook() {
        Ok(()) => 0,
        Err(raise) => lua.raise(raise).max(RAISE),
    };
    begin_lua(lua.extra());
    raised
}

/// Is called for an error that nobody catches. There is no way on.
pub unsafe extern "C-unwind" fn panic(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the error is on top; a text is printed at once.
    let text = unsafe {
        let text = ffi::lua_tolstring(state, -1, ptr::null_mut());
        if text.is_null() { c"(no text)" } else { CStr::from_ptr(text) }
    };
    eprintln!("an error of Lua that nobody catches: {}", text.to_string_lossy());
    std::process::abort();
}
