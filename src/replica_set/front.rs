//! Who answers clients of a server that has no store open, to lead or to be read: tells who leads, and refuses the rest, as a replica of Redis
//! refuses writes.

use crate::{
    acl::{self, Acl, User},
    command::{
        error::{
            EXECABORT, HELLO_NOAUTH, LOADING, MASTERDOWN, NO_PASSWORD_SET, NOAUTH, NOPROTO, READONLY, Stop,
            WRONGPASS,
        },
        keys::CallKeys,
        table::{Lookup, Table},
    },
    commands::hello_reply,
    config::{Config, Opt},
    net::listener::{Listeners, PROTECTED, TOO_MANY, refuse},
    server::{cluster::Cluster, replica_set::ReplicaSet},
    transport::{
        stream::{Socket, Stream},
        tls::Tls,
    },
    util::version::{REDIS_VERSION, VERSION},
};
use holdfast_resp::{Args, Limits, Parser, Proto, Writer};
use std::{
    cell::Cell,
    fmt::Write,
    future::poll_fn,
    io, process,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::spawn_local, time::timeout};

/// Bytes of a command, with what has arrived behind it.
const INPUT_MAX: usize = 1 << 20;
/// How long a client may take to take a reply, and to make a connection safe.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that say nothing for so long are closed.
const IDLE: Duration = Duration::from_secs(300);

/// Answers clients until it is dropped.
pub struct Front {
    pub(super) set: Arc<ReplicaSet>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) table: &'static Table,
    acl: Acl,
    is_protected: bool,
    clients_max: i64,
    clients: Cell<i64>,
    next_id: Cell<i64>,
    tls: Tls,
    started: Instant,
}

/// What is known of a connection.
struct Session {
    id: i64,
    proto: Proto,
    /// Who it is, once that is known.
    user: Option<Arc<User>>,
    name: Vec<u8>,
    /// Whether MULTI was said: no command behind it is queued.
    is_multi: bool,
    is_over: bool,
}

impl Front {
    /// With the options as they are, and the commands that there are.
    ///
    /// # Errors
    /// The certificates cannot be used, or the users cannot be read.
    pub fn new(
        config: &Config,
        set: Arc<ReplicaSet>,
        cluster: Arc<Cluster>,
        table: &'static Table,
    ) -> Result<Rc<Front>, String> {
        let tls = Tls::default();
        tls.configure(config)?;
        let acl = Acl::new(table);
        acl.set_password(&config.text(Opt::RequirePass));
        acl::load_at_start(&acl, config)?;
        Ok(Rc::new(Front {
            set,
            cluster,
            table,
            is_protected: config.is_on(Opt::ProtectedMode) && !acl.requires_auth(),
            acl,
            clients_max: config.number(Opt::MaxClients),
            clients: Cell::new(0),
            next_id: Cell::new(1),
            tls,
            started: Instant::now(),
        }))
    }

    /// Has connections from now on be as the options and the files of certificates say.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn configure(&self, config: &Config) -> Result<(), String> {
        self.tls.configure(config)?;
        self.set.trust.configure(config)?;
        if self.cluster.is_on() { self.cluster.trust.configure(config) } else { Ok(()) }
    }

    /// Accepts clients.
    pub async fn accept(self: Rc<Self>, listeners: Listeners) -> io::Result<()> {
        listeners
            .accept_each(|socket, is_remote| {
                if self.clients.get() >= self.clients_max {
                    return refuse(socket, TOO_MANY);
                }
                if is_remote && self.is_protected {
                    return refuse(socket, PROTECTED);
                }
                self.clients.set(self.clients.get() + 1);
                let front = self.clone();
                spawn_local(async move {
                    // Whatever ends a connection, the client notices.
                    let _ = front.serve(socket).await;
                    front.clients.set(front.clients.get() - 1);
                });
            })
            .await
    }

    async fn serve(&self, socket: Socket) -> io::Result<()> {
        let mut stream = timeout(PATIENCE, Stream::open(socket, &self.tls)).await??;
        let id = self.next_id.replace(self.next_id.get() + 1);
        let mut session = Session {
            id,
            proto: Proto::Resp2,
            user: self.anybody(),
            name: Vec::new(),
            is_multi: false,
            is_over: false,
        };
        let (mut input, mut output, mut parser) = (Vec::new(), Vec::new(), Parser::new());
        while !session.is_over {
            input.reserve(16 << 10);
            let read = timeout(IDLE, poll_fn(|cx| stream.poll_read(cx, &mut input))).await??;
            if read == 0 {
                return Ok(());
            }
            while !session.is_over {
                let limits =
                    Limits { max_bulk_len: INPUT_MAX as i64, unauthenticated: session.user.is_none() };
                let len = match parser.parse(&mut input, &limits) {
                    Ok(Some(len)) => len,
                    Ok(None) if input.len() < INPUT_MAX => break,
                    Ok(None) => return Ok(()),
                    Err(error) => {
                        Writer::new(&mut output, session.proto).error(format!("ERR {error}"));
                        session.is_over = true;
                        break;
                    }
                };
                let args = parser.args(&input);
                if !args.is_empty() {
                    self.answer(&args, &mut session, &mut output).await;
                }
                input.drain(..len);
            }
            let mut sent = 0;
            while sent < output.len() {
                sent += timeout(PATIENCE, poll_fn(|cx| stream.poll_write(cx, &output[sent..]))).await??;
            }
            timeout(PATIENCE, poll_fn(|cx| stream.poll_flush(cx))).await??;
            output.clear();
        }
        stream.close().await;
        Ok(())
    }

    async fn answer(&self, args: &Args<'_>, session: &mut Session, output: &mut Vec<u8>) {
        let name = args.at(0).to_ascii_lowercase();
        let mut out = Writer::new(output, session.proto);
        let is_free = matches!(&name[..], b"auth" | b"hello" | b"quit" | b"reset");
        match &session.user {
            _ if is_free => {}
            None => return out.error(NOAUTH.text().as_ref()),
            Some(user) => {
                if let Lookup::Found(id) = self.table.lookup(*args)
                    && let Err(denied) = user.may_run(id, *args, &CallKeys::default())
                {
                    return out
                        .error([b"NOPERM ", &denied.message(self.table, user, id, *args)[..]].concat());
                }
            }
        }
        let is =
            |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        match (&name[..], args.len()) {
            (b"ping", 1) => out.simple("PONG"),
            (b"ping", 2) | (b"echo", 2) => out.bulk(args.at(1)),
            (b"quit", _) => {
                session.is_over = true;
                out.ok();
            }
            (b"reset", 1) => {
                (session.proto, session.user) = (Proto::Resp2, self.anybody());
                Writer::new(output, Proto::Resp2).simple("RESET");
            }
            (b"auth", 2) if self.acl.default_user().rules().needs_no_password() => {
                out.error(NO_PASSWORD_SET.text().as_ref());
            }
            (b"auth", 2 | 3) => match self.authenticate(args, 1, session) {
                true => out.ok(),
                false => out.error(WRONGPASS.text().as_ref()),
            },
            (b"hello", _) => self.hello(args, session, output),
            (b"select", 2) | (b"readonly" | b"readwrite", 1) => out.ok(),
            (b"client", 3) if is(1, "setname") => {
                session.name = args.at(2).to_vec();
                out.ok();
            }
            (b"client", 2) if is(1, "getname") => {
                out.bulk_or_null(Some(&session.name).filter(|name| !name.is_empty()));
            }
            (b"client", 2) if is(1, "id") => out.int(session.id),
            (b"client", 4) if is(1, "setinfo") => out.ok(),
            (b"client", 3) if is(1, "reply") && is(2, "on") => out.ok(),
            (b"command", _) => out.array(0),
            (b"role", 1) => self.role(&mut out),
            (b"info", _) => out.verbatim("txt", self.info()),
            (b"sentinel", 2..) => {
                let rest: Vec<&[u8]> = args.from(1).iter().collect();
                if let Err(error) = self.set.sentinel(&rest, &mut out) {
                    out.error(error);
                }
            }
            (b"replicaset", 2) if is(1, "status") => self.set.status(&mut out),
            (b"shutdown", 1 | 2) => {
                // In order, as by a signal.
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
                session.is_over = true;
            }
            (b"cluster", 2..) => {
                if let Err(why) = self.cluster(args, &mut out).await {
                    out.error(why.text().as_ref());
                }
            }
            (b"asking", 1) if self.cluster.is_on() => out.ok(),
            (b"multi", 1) if self.cluster.is_on() && !session.is_multi => {
                session.is_multi = true;
                out.ok();
            }
            (b"discard", 1) if session.is_multi => {
                session.is_multi = false;
                out.ok();
            }
            (b"exec", 1) if session.is_multi => {
                session.is_multi = false;
                out.error(EXECABORT.text().as_ref());
            }
            _ => out.error(self.elsewhere(args).unwrap_or_else(|| self.refusal()).text().as_ref()),
        }
    }

    pub(super) fn refusal(&self) -> Stop {
        let view = self.set.view();
        match view.leader {
            Some(leader) if view.own == Some(leader) => LOADING,
            Some(_) => READONLY,
            None => MASTERDOWN,
        }
    }

    /// Who a client is before it says so.
    fn anybody(&self) -> Option<Arc<User>> {
        (!self.acl.requires_auth()).then(|| self.acl.default_user())
    }

    fn authenticate(&self, args: &Args, at: usize, session: &mut Session) -> bool {
        let (name, password) = match args.len() - at {
            1 => (acl::DEFAULT, args.at(at)),
            _ => (args.at(at), args.at(at + 1)),
        };
        let user = self.acl.authenticate(name, password);
        let is_right = user.is_some();
        session.user = user.or_else(|| session.user.take());
        is_right
    }

    fn hello(&self, args: &Args, session: &mut Session, output: &mut Vec<u8>) {
        let mut proto = session.proto;
        match args.get(1) {
            None => {}
            Some(b"2") => proto = Proto::Resp2,
            Some(b"3") => proto = Proto::Resp3,
            Some(_) => return Writer::new(output, proto).error(NOPROTO.text().as_ref()),
        }
        let mut at = 2;
        while at < args.len() {
            if args.at(at).eq_ignore_ascii_case(b"auth") && at + 2 < args.len() {
                if !self.authenticate(&args.first(at + 3), at + 1, session) {
                    return Writer::new(output, proto).error(WRONGPASS.text().as_ref());
                }
                at += 3;
            } else if args.at(at).eq_ignore_ascii_case(b"setname") && at + 1 < args.len() {
                session.name = args.at(at + 1).to_vec();
                at += 2;
            } else {
                let text = [b"ERR Syntax error in HELLO option '", args.at(at), b"'"].concat();
                return Writer::new(output, proto).error(text);
            }
        }
        if session.user.is_none() {
            return Writer::new(output, proto).error(HELLO_NOAUTH.text().as_ref());
        }
        session.proto = proto;
        hello_reply(&mut Writer::new(output, proto), session.id, self.cluster.mode(), "replica");
    }

    fn role(&self, out: &mut Writer) {
        let view = self.set.view();
        let leader = view.leader().map(|(_, address)| address);
        out.array(5);
        out.bulk("slave");
        out.bulk(leader.map_or("", |leader| &leader.host));
        out.int(leader.map_or(0, |leader| leader.port.into()));
        out.bulk(if leader.is_some() { "connected" } else { "connect" });
        out.int(view.extent.1 as i64);
    }

    /// What of INFO can be told without data, named as in Redis.
    fn info(&self) -> String {
        let view = self.set.view();
        let leader = view.leader().map(|(_, address)| address);
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            write!(text, "{name}:{value}\r\n").expect("a text takes all");
        };
        line("# Server\r\nredis_version", &REDIS_VERSION);
        line("holdfast_version", &VERSION);
        line("redis_mode", &self.cluster.mode());
        line("process_id", &process::id());
        line("uptime_in_seconds", &self.started.elapsed().as_secs());
        line("\r\n# Clients\r\nconnected_clients", &self.clients.get());
        line("\r\n# Persistence\r\nloading", &u8::from(view.leader.is_some() && view.leader == view.own));
        line("\r\n# Replication\r\nrole", &"slave");
        line("master_host", &leader.map_or("", |leader| &leader.host));
        line("master_port", &leader.map_or(0, |leader| leader.port));
        line("master_link_status", &if leader.is_some() { "up" } else { "down" });
        line("master_sync_in_progress", &0);
        line("slave_read_repl_offset", &view.extent.0);
        line("slave_repl_offset", &view.extent.1);
        line("slave_priority", &100);
        line("slave_read_only", &1);
        line("replica_announced", &1);
        line("connected_slaves", &0);
        line("\r\n# Cluster\r\ncluster_enabled", &u8::from(self.cluster.is_on()));
        line("\r\n# Replica_set\r\nreplica_set_servers", &view.servers.len());
        line("replica_set_server", &view.own.unwrap_or(0));
        line("replica_set_leader", &view.leader.unwrap_or(0));
        text
    }
}
