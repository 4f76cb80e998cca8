//! An interpreter's state and its memory.
//!
//! Lua's own code may find that there is no memory: the allocator refuses what goes beyond the limit, and Lua raises an
//! error, which leaves C by `longjmp`. Frames of Rust must not be left like that. So each way from Rust into Lua's code
//! and back says whose turn it is ([`Extra::in_lua`]): in Rust's turn the allocator never refuses, and what pushes a value
//! checks the limit before ([`Lua::reserve`]). `lua_pcall` ends Lua's turn with all frames of Lua's code, so that nothing of Rust's
//! lies between an error and who catches it. Texts that Lua makes outside of any protection are made beforehand, and stay.

use super::{Lua, PushError, Raise, extra::Extra, native};
use mlua_sys as ffi;
use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

/// Bytes of garbage up to which a script may leave it to the next one.
const GARBAGE_MAX: usize = 16 << 20;

/// Steps of functions of Rust after which the hook is called.
const STEPS: u32 = 10_000;

/// Lua's default for a pause of the collector and for its speed, in percent.
const COLLECTOR_DEFAULT: c_int = 200;

/// Texts of errors that Lua makes where no error can be caught. They are in memory already, so that making them takes none.
const TEXTS: [&CStr; 3] =
    [c"error in error handling", c"C stack overflow", c"cannot resume non-suspended coroutine"];

/// What [`Lua::collector`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Collector {
    Stop,
    Restart,
    Collect,
    /// Kilobytes in use.
    Count,
    /// The rest of these, in bytes.
    CountRest,
    Step,
    SetPause,
    SetSpeed,
}

/// An interpreter.
pub struct State {
    lua: Lua,
    extra: *mut Extra,
}

impl State {
    /// A new one without any library or limit.
    pub fn new() -> State {
        let extra = Box::into_raw(Box::new(Extra::new()));
        // SAFETY: the allocator is one, and its pointer lives until `drop` has closed the state.
        let main = unsafe { ffi::lua_newstate(allocate, extra.cast()) };
        assert!(!main.is_null(), "no memory for an interpreter");
        // SAFETY: it is a state, whose function for errors that nobody catches does not return, and `extra` lives.
        unsafe {
            ffi::lua_atpanic(main, native::panic);
            (*extra).main.set(main);
        }
        // SAFETY: nobody else uses the state while `State` lends it, and `extra` lives as long.
        let mut lua = unsafe { Lua::new(main, extra) };
        for text in TEXTS {
            lua.push_bytes(text.to_bytes()).expect("a new stack has room");
            lua.keep();
        }
        State { lua, extra }
    }

    /// Its main thread.
    pub fn lua(&mut self) -> &mut Lua {
        &mut self.lua
    }

    fn extra(&self) -> &Extra {
        // SAFETY: it lives as long as `self`.
        unsafe { &*self.extra }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.extra().used.get()
    }

    /// Limits its memory to so many bytes. Functions of Rust may go beyond by little, and a table that grows for them by
    /// as much as it has.
    pub fn set_limit(&mut self, bytes: usize) {
        self.extra().limit.set(bytes);
        self.extra().hurry_at.set(bytes / 2);
    }

    /// Undoes what a script has set of the collector, and collects its garbage if that is much.
    pub fn tidy(&mut self) {
        if self.extra().collector_changed.get() {
            self.lua.collector(Collector::Restart, 0);
            self.lua.collector(Collector::SetPause, COLLECTOR_DEFAULT);
            self.lua.collector(Collector::SetSpeed, COLLECTOR_DEFAULT);
            self.extra().collector_changed.set(false);
            self.extra().hurry_at.set(self.extra().limit.get() / 2);
        }
        let (live, limit) = (self.extra().live.get(), self.extra().limit.get());
        // Half of what is free is left for the next script in any case.
        let most = live.saturating_mul(2).saturating_add(GARBAGE_MAX).min(live / 2 + limit / 2);
        if self.bytes() > most {
            self.lua.collector(Collector::Collect, 0);
            self.extra().live.set(self.bytes());
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: nobody uses the state any more, and the state was the last to use `extra`.
        unsafe {
            ffi::lua_close(self.lua.state);
            drop(Box::from_raw(self.extra));
        }
    }
}

impl Lua {
    /// Makes sure of so many free slots of the stack and bytes of memory.
    #[inline]
    pub(super) fn reserve(&mut self, slots: c_int, bytes: usize) -> Result<(), PushError> {
        self.check_memory(bytes)?;
        self.reserve_slots(slots)
    }

    /// Makes sure of so many free slots of the stack.
    #[inline]
    pub(super) fn reserve_slots(&mut self, slots: c_int) -> Result<(), PushError> {
        let end = self.top().saturating_add(slots);
        if end > self.room {
            // SAFETY: it only makes room.
            if unsafe { ffi::lua_checkstack(self.state, slots) } == 0 {
                return Err(PushError::StackOverflow);
            }
            self.room = end;
        }
        Ok(())
    }

    /// Fails if so many more bytes were too many, even after garbage is collected.
    #[inline]
    pub fn check_memory(&mut self, bytes: usize) -> Result<(), PushError> {
        if self.extra().is_over(bytes) { self.make_memory(bytes) } else { Ok(()) }
    }

    #[cold]
    fn make_memory(&mut self, bytes: usize) -> Result<(), PushError> {
        // What is larger by itself needs no look.
        if bytes <= self.extra().limit.get() {
            self.collector(Collector::Collect, 0);
        }
        if self.extra().is_over(bytes) { Err(PushError::NotEnoughMemory) } else { Ok(()) }
    }

    /// Is called by functions of Rust for each step of what may take long: from time to time it does what a hook does.
    #[inline]
    pub fn step(&mut self) -> Result<(), Raise> {
        let steps = self.extra().steps.get() + 1;
        self.extra().steps.set(steps % STEPS);
        if steps == STEPS { self.run_hook() } else { Ok(()) }
    }

    /// The same for a step that takes long by itself, however little of the script's own code that is.
    pub fn long_step(&mut self) -> Result<(), Raise> {
        self.run_hook()
    }

    #[cold]
    pub(super) fn run_hook(&mut self) -> Result<(), Raise> {
        let hook = self.extra().hook.get();
        hook.map_or(Ok(()), |hook| hook(self))
    }

    /// Controls the garbage collector.
    pub fn collector(&mut self, what: Collector, value: c_int) -> c_int {
        let code = match what {
            Collector::Stop => ffi::LUA_GCSTOP,
            Collector::Restart => ffi::LUA_GCRESTART,
            Collector::Collect => ffi::LUA_GCCOLLECT,
            Collector::Count => ffi::LUA_GCCOUNT,
            Collector::CountRest => ffi::LUA_GCCOUNTB,
            Collector::Step => ffi::LUA_GCSTEP,
            Collector::SetPause => ffi::LUA_GCSETPAUSE,
            Collector::SetSpeed => ffi::LUA_GCSETSTEPMUL,
        };
        if matches!(what, Collector::Stop | Collector::SetPause | Collector::SetSpeed) {
            self.extra().collector_changed.set(true);
        }
        // SAFETY: the state may be collected whenever Rust has its turn.
        unsafe { ffi::lua_gc(self.state, code, value) }
    }
}

/// Lets the collector go through to its end when it has its next turn. It counts steps and not bytes, and would not
/// keep up with large strings, while the allocator, which must refuse, cannot wait for it.
#[cold]
fn hurry(extra: &Extra) {
    let (used, limit) = (extra.used.get(), extra.limit.get());
    extra.hurry_at.set(used + (limit.saturating_sub(used) / 4).max(limit / 64));
    extra.collector_changed.set(true);
    // SAFETY: both only set a number: the steps in a turn, of which 0 are as many as there are, and when that comes.
    unsafe {
        ffi::lua_gc(extra.main.get(), ffi::LUA_GCSETSTEPMUL, 0);
        ffi::lua_gc(extra.main.get(), ffi::LUA_GCRESTART, 0);
    }
}

unsafe extern "C" fn allocate(extra: *mut c_void, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: `State::new` gave this pointer, which lives as long as the state.
    let extra = unsafe { &*extra.cast::<Extra>() };
    let used = extra.used.get();
    if new == 0 {
        extra.used.set(used - old);
        // SAFETY: the block, if any, came from `realloc`.
        unsafe { libc::free(block) };
        return ptr::null_mut();
    }
    let after = (used - old).saturating_add(new);
    if new > old && extra.in_lua.get() && after > extra.limit.get() {
        return ptr::null_mut();
    }
    // SAFETY: the block, if any, came from `realloc`.
    let moved = unsafe { libc::realloc(block, new) };
    if moved.is_null() {
        return match (new <= old, extra.in_lua.get()) {
            // Lua takes for granted that blocks can become smaller.
            (true, _) => block,
            (false, true) => moved,
            (false, false) => std::process::abort(),
        };
    }
    extra.used.set(after);
    if after > extra.hurry_at.get() && new > old {
        hurry(extra);
    }
    moved
}
