//! A worker: what executes commands in one thread.

use crate::{
    admin::stats::WorkerStats,
    config::Opt,
    exec::{fetcher::Fetcher, handler::Rows},
    script::{engine::Engine, stack::Stack},
    server::Server,
};
use holdfast_io::Moment;
use holdfast_store::Store;
use std::{
    cell::{Cell, RefCell, RefMut},
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::sync::Semaphore;

/// What tells a worker the time by which it shares itself out: [`Moment::now`], or a test's own.
pub type Clock = fn() -> Moment;

/// A worker.
pub struct Worker {
    /// What it shares with others.
    pub server: Arc<Server>,
    /// What executes commands.
    pub rows: &'static Rows,
    /// Its number.
    pub index: usize,
    /// Its clock.
    pub clock: Clock,
    /// Something was appended to the log in this loop turn. Only the worker's own thread uses it.
    pub appended: Arc<AtomicBool>,
    /// The data folder lies on storage-class memory.
    pub on_scm: bool,
    /// Reads what is not in memory.
    pub fetcher: Rc<Fetcher>,
    engine: RefCell<Option<Engine>>,
    /// Held by whoever wants the interpreter for itself, since a script that is paused keeps it; given in the order in which it was asked for.
    pub script_turn: Arc<Semaphore>,
    /// How many wait for it.
    pub scripts_waiting: Cell<usize>,
    /// For a script, while none runs.
    stack: Cell<Option<Stack>>,
}

/// Has what was appended committed, if something was.
pub fn kick(store: &Store, appended: &AtomicBool) {
    if appended.load(Relaxed) {
        appended.store(false, Relaxed);
        store.log().kick();
    }
}

impl Worker {
    /// A new one.
    pub fn new(server: Arc<Server>, rows: &'static Rows, index: usize, clock: Clock) -> Worker {
        Worker {
            on_scm: server.store.scm().is_some(),
            fetcher: Rc::new(Fetcher::new(server.store.clone())),
            server,
            rows,
            index,
            clock,
            appended: Arc::default(),
            engine: RefCell::default(),
            script_turn: Arc::new(Semaphore::new(1)),
            scripts_waiting: Cell::new(0),
            stack: Cell::default(),
        }
    }

    /// Its counters.
    #[inline]
    pub fn stats(&self) -> &WorkerStats {
        &self.server.workers[self.index]
    }

    /// Has what was appended in this loop turn committed before the turn ends.
    pub fn kick(&self) {
        kick(&self.server.store, &self.appended);
    }

    /// On storage-class memory, has what was appended in this loop turn stored while it goes on.
    #[inline]
    pub fn store_ahead(&self) {
        if self.on_scm && self.appended.load(Relaxed) {
            self.server.store.log().store_ahead();
        }
    }

    /// Whether its interpreter runs no script.
    pub fn engine_is_free(&self) -> bool {
        self.engine.try_borrow_mut().is_ok()
    }

    /// Its interpreter of scripts, while none runs.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        let mut engine =
            RefMut::map(self.engine.borrow_mut(), |engine| engine.get_or_insert_with(Engine::new));
        engine.set_memory_max(self.server.config.number(Opt::ScriptMaxMemory) as usize);
        engine
    }

    /// The same to find or compile a script or function: without what was deleted. What was found before is of no use then.
    pub fn compiler(&self) -> RefMut<'_, Engine> {
        let mut engine = self.engine();
        engine.forget_deleted(&self.server.libraries);
        engine
    }

    /// A stack for a script.
    pub fn take_stack(&self) -> io::Result<Stack> {
        self.stack.take().map_or_else(Stack::new, Ok)
    }

    /// Keeps a stack for the next script.
    pub fn give_stack(&self, stack: Stack) {
        self.stack.set(Some(stack));
    }
}
