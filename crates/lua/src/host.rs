//! What a running script asks of the server.

use crate::interpreter::{Lua, PushError, Raise, Ref};
use holdfast_resp::{Args, Proto, Span};
use std::{borrow::Cow, ptr};

/// The server as a running script sees it.
pub trait Host {
    /// Runs a command, and writes its reply; the error says why it was not run.
    fn call(&mut self, args: Args, reply: &mut Vec<u8>) -> Result<(), Cow<'static, [u8]>>;

    /// Whether the script's user may run a command; `None`: there is no such command.
    fn may_run(&mut self, args: Args) -> Option<bool>;

    /// Chooses the protocol of replies to the script.
    fn set_proto(&mut self, proto: Proto);

    /// The protocol that the script has chosen for replies to it.
    fn proto(&self) -> Proto;

    /// Counts an error that the script returns.
    fn count_error(&mut self, text: &[u8]);

    /// Registers a function of the library that is loaded, with what it runs; the error says why it is none, and then
    /// that is forgotten.
    fn register(&mut self, function: NewFunction, callback: Ref) -> Result<(), String>;

    /// Logs a message of the script.
    fn log(&mut self, level: LogLevel, message: &str);

    /// Is called from time to time; an error ends the script, whatever that does.
    fn tick(&mut self) -> Result<(), String>;

    /// Memory for arguments and replies.
    fn scratch(&mut self) -> &mut Scratch;
}

/// How important a message of a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// A function that a library registers.
pub struct NewFunction {
    /// Its name.
    pub name: Vec<u8>,
    /// What it does.
    pub description: Option<Vec<u8>>,
    /// The names of its flags.
    pub flags: Vec<Vec<u8>>,
}

/// Arguments and replies on their way between scripts and commands; their memory is used again.
#[derive(Default)]
pub struct Scratch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<Span>,
    pub(crate) reply: Vec<u8>,
}

/// More memory than this is given back after a call, in bytes.
const SCRATCH_MAX: usize = 1 << 20;

impl Scratch {
    /// Gives back what is too much to keep.
    pub(crate) fn trim(&mut self) {
        if self.bytes.capacity() > SCRATCH_MAX {
            self.bytes = Vec::new();
        }
        if self.reply.capacity() > SCRATCH_MAX {
            self.reply = Vec::new();
        }
    }
}

/// Instructions between two ticks.
const TICK: i32 = 100_000;

/// Runs `f`, in which scripts run, with a host.
pub fn run_with<R>(lua: &mut Lua, host: &mut dyn Host, f: impl FnOnce(&mut Lua) -> R) -> R {
    // SAFETY: only the lifetime is changed, and the pointer is forgotten before it ends.
    let mut host: *mut (dyn Host + 'static) = unsafe { std::mem::transmute(ptr::from_mut(host)) };
    lua.set_context(ptr::from_mut(&mut host).cast());
    lua.set_hook(tick, TICK, false);
    let result = f(lua);
    lua.clear_hook();
    lua.set_context(ptr::null_mut());
    result
}

/// Calls `f` with the host of the script that runs; `None`: none does, or the host is in use already.
pub fn with_host<R>(lua: &mut Lua, f: impl FnOnce(&mut Lua, &mut dyn Host) -> R) -> Option<R> {
    let context = lua.context();
    if context.is_null() {
        return None;
    }
    lua.set_context(ptr::null_mut());
    // SAFETY: `run_with` has set the context to the place of such a pointer, which is valid until it takes it back; while
    // the host is in use here, the context is null, so that there is no second reference.
    let host = unsafe { &mut **context.cast::<*mut dyn Host>() };
    let result = f(lua, host);
    lua.set_context(context);
    Some(result)
}

fn tick(lua: &mut Lua) -> Result<(), Raise> {
    match with_host(lua, |_, host| host.tick()) {
        Some(Err(text)) => {
            // From now on at each line, so that the script cannot catch the error and go on.
            lua.set_hook(tick, TICK, true);
            push_error(lua, text.as_bytes(), false)?;
            Err(Raise::Value)
        }
        _ => Ok(()),
    }
}

/// An error as scripts see it: a table with its text, the code first.
pub fn push_error(lua: &mut Lua, text: &[u8], counted: bool) -> Result<(), PushError> {
    lua.push_table(0, 4)?;
    lua.push_bytes(text)?;
    lua.set_field(-2, "err")?;
    if counted {
        lua.push_bool(true)?;
        lua.set_field(-2, "ignore_error_stats_update")?;
    }
    Ok(())
}
