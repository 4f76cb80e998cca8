//! What a state carries beside Lua's own.

use super::Hook;
use mlua_sys as ffi;
use std::{cell::Cell, ffi::c_void, ptr};

/// Bytes that functions of Rust may take beyond the limit, so that they can still report an error.
const HEADROOM: usize = 1 << 20;

/// What a state carries beside Lua's own: the other end of the allocator's pointer.
pub struct Extra {
    /// Bytes in use.
    pub used: Cell<usize>,
    /// Bytes that may be in use.
    pub limit: Cell<usize>,
    /// Whether Lua's own code runs, which is told of a lack of memory by an error.
    pub in_lua: Cell<bool>,
    /// Bytes in use from which on all garbage is to be collected.
    pub hurry_at: Cell<usize>,
    pub main: Cell<*mut ffi::lua_State>,
    /// Bytes that were in use between two scripts, when all garbage had been collected.
    pub live: Cell<usize>,
    /// Whether a script has changed how garbage is collected.
    pub collector_changed: Cell<bool>,
    pub context: Cell<*mut c_void>,
    pub hook: Cell<Option<Hook>>,
    /// Steps of Rust's since the hook was called.
    pub steps: Cell<u32>,
}

impl Extra {
    /// That of a new state, without a limit.
    pub fn new() -> Extra {
        Extra {
            used: Cell::new(0),
            limit: Cell::new(usize::MAX),
            in_lua: Cell::new(false),
            hurry_at: Cell::new(usize::MAX),
            main: Cell::new(ptr::null_mut()),
            live: Cell::new(0),
            collector_changed: Cell::new(false),
            context: Cell::new(ptr::null_mut()),
            hook: Cell::new(None),
            steps: Cell::new(0),
        }
    }

    /// Whether so many more bytes were too many.
    pub fn is_over(&self, more: usize) -> bool {
        self.used.get().saturating_add(more) > self.limit.get().saturating_add(HEADROOM)
    }
}
