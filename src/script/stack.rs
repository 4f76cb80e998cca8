//! A stack of its own for what runs a script, so that a script that runs for long can be left in the middle: its worker then
//! serves its clients, of whom one may want the script to be killed, and goes on with it later.

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use holdfast_store::{Cold, Fetched};
use std::{cell::Cell, io, marker::PhantomData, ptr};

/// Bytes of a stack. They take memory when they are used: Lua's pattern matching recurses deeply at times.
const SIZE: usize = 16 << 20;

/// Why a function leaves its stack.
pub enum Pause {
    /// It is others' turn.
    Turn,
    /// What it needs is held by another script.
    LockBusy,
    /// It needs these from the medium.
    Fetch(Vec<Cold>),
}

type Way = Yielder<Vec<Fetched>, Pause>;

thread_local! {
    /// The way back from the stack that this thread is on.
    static CURRENT: Cell<*const Way> = const { Cell::new(ptr::null()) };
    /// What is on that stack is to end.
    static ABANDONED: Cell<bool> = const { Cell::new(false) };
}

/// A stack that may be used again.
pub struct Stack(DefaultStack);

impl Stack {
    /// A new one.
    pub fn new() -> io::Result<Stack> {
        DefaultStack::new(SIZE).map(Stack)
    }
}

/// A function that runs on a stack of its own. If it is dropped before the function has ended, the function is told to end
/// ([`is_abandoned`]), and it is run until it does.
pub struct OnStack<'f, R> {
    coroutine: Option<Coroutine<Vec<Fetched>, Pause, R, DefaultStack>>,
    borrows: PhantomData<&'f mut ()>,
}

impl<'f, R> OnStack<'f, R> {
    /// Lets a function run on a stack. It begins with [`OnStack::resume`].
    pub fn new(stack: Stack, f: impl FnOnce() -> R + 'f) -> OnStack<'f, R> {
        let run = move |yielder: &Way, _| {
            CURRENT.set(yielder);
            let result = f();
            CURRENT.set(ptr::null());
            result
        };
        // SAFETY: what the function borrows lives for 'f, and so longer than `self`; `drop` lets it end before.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack.0, run) };
        OnStack { coroutine: Some(coroutine), borrows: PhantomData }
    }

    /// Goes on, with what was fetched for it, until the function ends, or pauses.
    pub fn resume(&mut self, fetched: Vec<Fetched>) -> Result<R, Pause> {
        match self.coroutine.as_mut().expect("it has a stack").resume(fetched) {
            CoroutineResult::Yield(why) => Err(why),
            CoroutineResult::Return(result) => Ok(result),
        }
    }

    /// The stack, after the end.
    pub fn into_stack(mut self) -> Stack {
        Stack(self.coroutine.take().expect("it has a stack").into_stack())
    }
}

impl<R> Drop for OnStack<'_, R> {
    fn drop(&mut self) {
        let Some(coroutine) = &mut self.coroutine else { return };
        ABANDONED.set(true);
        while coroutine.started() && !coroutine.done() {
            coroutine.resume(Vec::new());
        }
        ABANDONED.set(false);
    }
}

/// Leaves the stack that this thread is on, until it is resumed with what was fetched for it; not at all, if it is on none.
/// What was to be fetched is not there if what is on the stack is to end.
pub fn pause(why: Pause) -> Vec<Fetched> {
    let yielder = CURRENT.replace(ptr::null());
    if yielder.is_null() {
        return Vec::new();
    }
    // SAFETY: it belongs to the function that runs on this stack, and so lives.
    let fetched = unsafe { (*yielder).suspend(why) };
    CURRENT.set(yielder);
    fetched
}

/// Whether this thread is on a stack of its own.
pub fn is_on_stack() -> bool {
    !CURRENT.get().is_null()
}

/// Whether what is on the stack is to end.
pub fn is_abandoned() -> bool {
    ABANDONED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_pauses_and_goes_on() {
        let mut seen = Vec::new();
        let mut run = OnStack::new(Stack::new().unwrap(), || {
            for number in 0..3 {
                seen.push(number);
                pause(Pause::Turn);
            }
            "done"
        });
        assert_eq!([(); 4].map(|()| run.resume(Vec::new()).ok()), [None, None, None, Some("done")]);
        assert!(!is_on_stack());
        let stack = run.into_stack();
        let mut again = OnStack::new(stack, || 7);
        assert_eq!(again.resume(Vec::new()).ok(), Some(7));
        drop(again);
        assert_eq!(seen, [0, 1, 2]);
    }

    #[test]
    fn what_is_dropped_ends_before() {
        let mut ended = false;
        let mut run = OnStack::new(Stack::new().unwrap(), || {
            while !is_abandoned() {
                pause(Pause::Turn);
            }
            ended = true;
        });
        assert!(run.resume(Vec::new()).is_err());
        drop(run);
        assert!(ended);
    }
}
