//! What a connection remembers between commands.

pub mod ahead;
pub mod migration;
pub mod observe;
pub mod progress;
pub mod snapshot;

use crate::{
    acl::{Acl, User},
    clients::client::{Client, flag},
    command::{
        Flags,
        keys::CallKeys,
        table::{CommandId, Table},
    },
    commit::{admission::Ticket, durability::Lsn},
    push::{pubsub::Subscriptions, tracking::Mode},
    server::Server,
    session::{
        ahead::ReadAhead,
        observe::{Waiting, Watched},
        progress::Progress,
        snapshot::SnapshotRequest,
    },
};
use holdfast_resp::{OwnedArgs, Proto};
use holdfast_store::{Fetched, Lease};
use std::{sync::Arc, time::Duration};

/// The state of a connection that its commands see.
pub struct Session {
    /// What other threads see of it.
    pub client: Arc<Client>,
    /// Who it is.
    pub user: Arc<User>,
    /// Whether it is the primary, of which this server is a replica.
    pub is_primary: bool,
    /// Chosen by HELLO.
    pub proto: Proto,
    /// Chosen by SELECT.
    pub db: usize,
    /// Whether it has said who it is, or need not.
    pub authenticated: bool,
    /// Which replies are sent, by CLIENT REPLY.
    pub replies: Replies,
    /// Whether the current command was answered by out-of-band messages, which CLIENT REPLY does not silence.
    pub replied_by_push: bool,
    /// What its replies so far have depended on.
    pub wait_lsn: Lsn,
    /// What it is subscribed to.
    pub subscriptions: Subscriptions,
    /// How it tracks the keys that it reads, if it does.
    pub tracking: Option<Mode>,
    /// Commands between MULTI and EXEC.
    pub multi: Option<Multi>,
    /// Whether EXEC is running them now; nothing may wait then.
    pub in_exec: bool,
    /// Whether a script calls them now.
    pub in_script: bool,
    /// While EXEC runs: those of its queue.
    pub orders: Orders,
    /// What TIME has told EXEC's commands or a script, which see one time: since 1970.
    pub time: Option<Duration>,
    /// Commands until ASKING is over, that itself included.
    pub asking: u8,
    /// Whether it reads at nodes that follow in a replica set (READONLY).
    pub reads_replicas: bool,
    /// Keys that EXEC must find unchanged.
    pub watched: Watched,
    /// What the current command waits for.
    pub waiting: Option<Waiting>,
    /// Its place among those that wait for room to write.
    pub ticket: Option<Ticket>,
    /// What its commands draw next. One that runs again draws the same.
    pub draws: fastrand::Rng,
    /// What the server keeps for a backup that it has begun.
    pub backup: Option<Lease>,
    /// What REPLCONF has said.
    pub snapshot: SnapshotRequest,
    /// How far the current command has come, if it is done in several runs.
    pub progress: Option<Progress>,
    /// Nanoseconds that its runs so far have taken.
    pub spent_ns: u64,
    /// What was fetched for it and is not yet in the hands of a transaction; empty between commands.
    pub fetched: Vec<Fetched>,
    /// What was read for commands that come next.
    pub ahead: ReadAhead,
}

/// Which replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// All.
    On,
    /// None.
    Off,
    /// None to the command after this one.
    SkipNext,
    /// None to this command.
    Skip,
}

/// A transaction that is being put together.
#[derive(Default)]
pub struct Multi {
    /// What EXEC is to run.
    pub queue: Vec<Queued>,
    /// A command was refused, so EXEC must refuse all.
    pub aborted: bool,
    /// How often EXEC has begun again because something had to be fetched in the middle.
    pub restarts: u32,
    /// What became of the changes of the cluster that its commands have ordered.
    pub orders: Orders,
}

/// What became of the changes of the cluster that EXEC's commands have ordered. Each waits until it is decided, and EXEC then begins again.
#[derive(Default)]
pub struct Orders {
    /// In order.
    pub outcomes: Vec<Result<(), String>>,
    /// How many of these the run has come to.
    pub used: usize,
    /// Whether what the run has done so far can be done again.
    pub may_wait: bool,
}

impl Multi {
    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let memory = |call: &Queued| size_of::<Queued>() + call.args.memory() + call.keys.memory();
        self.queue.iter().map(memory).sum()
    }

    /// What of the queue writes.
    pub fn writes(&self, table: &Table) -> impl Iterator<Item = &Queued> {
        self.queue.iter().filter(|call| table.command(call.id).flags.has(Flags::WRITE))
    }
}

/// A call that EXEC is to run.
pub struct Queued {
    /// The command.
    pub id: CommandId,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Its keys.
    pub keys: CallKeys,
}

impl Session {
    /// A session as a new connection has it.
    pub fn new(client: Arc<Client>, acl: &Acl) -> Self {
        let is_primary = client.has_flag(flag::PRIMARY);
        let user = if is_primary { acl.anyone() } else { acl.default_user() };
        let authenticated = is_primary || !acl.requires_auth();
        let mut session = Session {
            client,
            user: user.clone(),
            is_primary,
            proto: Proto::Resp2,
            db: 0,
            authenticated,
            replies: Replies::On,
            replied_by_push: false,
            wait_lsn: 0,
            subscriptions: Subscriptions::default(),
            tracking: None,
            multi: None,
            in_exec: false,
            in_script: false,
            orders: Orders::default(),
            time: None,
            asking: 0,
            reads_replicas: false,
            watched: Watched::default(),
            waiting: None,
            ticket: None,
            draws: fastrand::Rng::new(),
            backup: None,
            snapshot: SnapshotRequest::default(),
            progress: None,
            spent_ns: 0,
            fetched: Vec::new(),
            ahead: ReadAhead::default(),
        };
        session.log_in(user, authenticated);
        session
    }

    /// From now on its commands are those of this user.
    pub fn log_in(&mut self, user: Arc<User>, authenticated: bool) {
        self.client.set_user(&user.name);
        self.user = user;
        self.authenticated = authenticated;
    }

    /// As new, for RESET; the connection keeps its number and its library's name.
    pub fn reset(&mut self, server: &Server) {
        self.leave(server);
        self.client.set_name(b"");
        self.client.set_flag(flag::NO_EVICT | flag::NO_TOUCH, false);
        *self = Session::new(self.client.clone(), &server.acl);
    }

    /// Whether the last command was ASKING.
    pub fn asks(&self) -> bool {
        self.asking > 0
    }

    /// A command is over.
    #[inline]
    pub fn has_asked(&mut self) {
        self.asking = self.asking.saturating_sub(1);
    }

    /// UNWATCH, also while a script has locked the keys.
    pub fn forget_watched(&mut self, server: &Server) {
        let mut watched = std::mem::take(&mut self.watched);
        if !watched.is_empty() {
            server.busy.when_over(&server.store, move |store| watched.forget(store));
        }
    }

    /// Waits for nothing any more, also while a script has locked the keys.
    pub fn stop_waiting(&mut self, server: &Server) {
        if let Some(waiting) = self.waiting.take() {
            server.busy.when_over(&server.store, move |store| waiting.abandon(store));
        }
    }

    /// Takes the session out of what others know of it.
    pub fn leave(&mut self, server: &Server) {
        self.forget_watched(server);
        self.stop_waiting(server);
        self.ticket = None;
        self.subscriptions.end_all(&server.push.pubsub, &self.client);
        self.stop_tracking(server);
        server.push.monitors.end(&self.client);
    }

    /// CLIENT TRACKING OFF.
    pub fn stop_tracking(&mut self, server: &Server) {
        if let Some(mode) = self.tracking.take() {
            server.push.tracking.end(&self.client, &mode);
            server.push.want_changes(&server.store);
        }
    }

    /// Shows other threads its state.
    pub fn publish(&self) {
        let resp = if self.proto == Proto::Resp3 { 3 } else { 2 };
        let multi = self
            .multi
            .as_ref()
            .map(|multi| (multi.queue.len(), multi.queue.iter().map(|call| call.args.args().bytes()).sum()));
        self.client.publish_session(self.db, multi, self.watched.len(), resp);
    }
}
