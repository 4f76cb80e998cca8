//! The port: connections, and what they may ask.
//!
//! A connection is for one request, and has a time limit for all of it. So whoever sends slowly, or does not read, is gone
//! soon; only so many are served at once, and the others wait to be accepted.

use super::{encode::encode, snapshot::Snapshot, status::status};
use crate::{
    admin::log::log,
    config::{Config, Opt},
    figures::health::{Severity, problems, worst},
    net::listener::listen_on_port,
    server::{Server, replica_set::ReplicaSet},
    util::runtime,
};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
        X_CONTENT_TYPE_OPTIONS,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    cell::RefCell,
    convert::Infallible,
    io,
    net::TcpListener,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, oneshot},
    task::spawn_local,
    time::{sleep, timeout},
};

/// Connections that are served at once.
const CONNECTIONS_MAX: usize = 32;
/// Connections that may wait to be accepted, for each address.
const BACKLOG: i32 = 64;
/// How long a connection may take from its acceptance to the last byte of its response.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// Bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long to wait after accepting has failed.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long a scrape waits for a script that holds partitions, before it shows older figures.
const SCRIPT_PATIENCE: Duration = Duration::from_millis(500);
/// What one that follows says to who looks for the leader.
const ANOTHER_LEADS: &str = "another server of the replica set leads, or none";
/// How often it looks meanwhile.
const SCRIPT_LOOK: Duration = Duration::from_millis(5);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// The page for people. It shows what `/metrics` and `/status` tell.
const PAGE: &str = include_str!("page.html");
/// What a browser is to allow the page: what is in it, and requests to this port.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The sockets of the port, before anybody is answered.
pub struct Bound(Vec<TcpListener>);

impl Bound {
    /// Listens where the options say; `None` if they name no port.
    pub fn open(config: &Config) -> Result<Option<Bound>, String> {
        let port = config.number(Opt::MetricsPort) as u16;
        let sockets = listen_on_port(Opt::MetricsBind, &config.text(Opt::MetricsBind), port, BACKLOG);
        let sockets = sockets.map_err(|what| format!("option 'metrics-port': {what}"))?;
        match (port, sockets.is_empty()) {
            (0, _) => Ok(None),
            (_, true) => Err("option 'metrics-bind': no address could be bound".into()),
            _ => Ok(Some(Bound(sockets))),
        }
    }

    /// The sockets, for another process.
    pub fn lend(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().map(TcpListener::as_fd).collect()
    }

    /// Takes over what another process has lent.
    pub fn adopt(sockets: impl Iterator<Item = OwnedFd>) -> Bound {
        Bound(sockets.map(TcpListener::from).collect())
    }

    /// The same sockets once more.
    pub fn duplicate(&self) -> io::Result<Bound> {
        self.0.iter().map(TcpListener::try_clone).collect::<io::Result<_>>().map(Bound)
    }

    /// Answers from now on.
    pub fn serve(self) -> io::Result<Port> {
        let shown = Shown::default();
        let (stop, stopped) = oneshot::channel();
        let addresses: io::Result<Vec<_>> = self.0.iter().map(TcpListener::local_addr).collect();
        for address in addresses? {
            log!(Notice, "Metrics are on http://{address}/metrics");
        }
        let answering = shown.clone();
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
            if let Err(e) = run(self.0, answering, stopped) {
                log!(Warning, "the metrics port could not start: {e}");
            }
        })?;
        Ok(Port { shown, stop: Some(stop), thread: Some(thread) })
    }
}

/// What the port tells of.
#[derive(Clone, Default)]
enum Subject {
    /// Nothing yet.
    #[default]
    None,
    /// A replica set, of which the server is one that has no data open.
    Set(Arc<ReplicaSet>),
    /// The server, which serves, or follows and is read.
    Server(Arc<Server>),
}

type Shown = Arc<Mutex<Subject>>;

/// The port while it answers. It ends when this is dropped.
pub struct Port {
    shown: Shown,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Port {
    /// Shows the figures of a server. Before, the port says that there is none yet.
    pub fn show(&self, server: Arc<Server>) {
        *self.shown.lock().expect("no holder panics") = Subject::Server(server);
    }

    /// Tells of a replica set in which the server follows.
    pub fn show_set(&self, set: Arc<ReplicaSet>) {
        *self.shown.lock().expect("no holder panics") = Subject::Set(set);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic ends the process");
        }
    }
}

/// Answers until `stopped`.
fn run(sockets: Vec<TcpListener>, shown: Shown, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = runtime::local()?;
    let desk =
        Rc::new(Desk { shown, last: RefCell::default(), places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) });
    runtime.block_on(async {
        for socket in sockets {
            spawn_local(desk.clone().accept(tokio::net::TcpListener::from_std(socket)?));
        }
        // Whoever drops the other end says the same.
        let _ = stopped.await;
        Ok(())
    })
}

/// Who answers.
struct Desk {
    shown: Shown,
    /// The last figures of all partitions.
    last: RefCell<Option<Arc<Snapshot>>>,
    places: Arc<Semaphore>,
}

impl Desk {
    async fn accept(self: Rc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let place = self.places.clone().acquire_owned().await.expect("it is never closed");
            match listener.accept().await {
                Ok((socket, _)) => {
                    let desk = self.clone();
                    spawn_local(async move {
                        // Who takes longer is disconnected.
                        let _ = timeout(CONNECTION_TIME, desk.serve(socket)).await;
                        drop(place);
                    });
                }
                Err(e) => {
                    log!(Warning, "cannot accept a connection to the metrics port: {e}");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn serve(self: Rc<Self>, socket: TcpStream) {
        let answer = service_fn(|request| {
            let desk = self.clone();
            async move { Ok::<_, Infallible>(desk.answer(request).await) }
        });
        let mut http = http1::Builder::new();
        // The time limit is that of the connection.
        http.keep_alive(false)
            .header_read_timeout(None)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        // What is no HTTP has got its 400 already, and a peer that is gone needs nothing.
        let _ = http.serve_connection(TokioIo::new(socket), answer).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !["/", "/metrics", "/status", "/health", "/ready", "/leader"].contains(&path) {
            let text = "There are /, /metrics, /status, /health, /ready and /leader.\n";
            return respond(StatusCode::NOT_FOUND, TEXT, text.to_owned());
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut response =
                respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Only GET and HEAD are allowed.\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let subject = self.shown.lock().expect("no holder panics").clone();
        match (path, subject) {
            ("/", _) => {
                let mut response = respond(StatusCode::OK, HTML, PAGE.to_owned());
                let policy = HeaderValue::from_static(PAGE_POLICY);
                response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
                response
            }
            // The process lives, and has not failed yet.
            ("/health", Subject::None) => respond(StatusCode::OK, TEXT, "starting\n".to_owned()),
            (_, Subject::None) => unavailable("the server is starting: its data folder is being opened"),
            ("/health" | "/ready", Subject::Set(set)) => follows(&set, path == "/health"),
            (_, Subject::Set(_)) => unavailable(ANOTHER_LEADS),
            ("/health" | "/ready" | "/leader", Subject::Server(server)) => match server.replication.set() {
                Some(_) if path == "/leader" => unavailable(ANOTHER_LEADS),
                Some(set) => follows(set, path == "/health"),
                None if path == "/health" => probe(&server, Severity::Failed),
                None => probe(&server, Severity::NotReady),
            },
            ("/status", Subject::Server(server)) => respond(StatusCode::OK, JSON, status(&server)),
            (_, Subject::Server(server)) => match self.snapshot(&server).await {
                Some(snapshot) => respond(StatusCode::OK, OPENMETRICS, encode(server, snapshot)),
                None => unavailable("a script holds keys, and there are no older figures"),
            },
        }
    }

    /// Figures of all partitions: those of now, or while a script holds some the last ones that there are.
    async fn snapshot(&self, server: &Server) -> Option<Arc<Snapshot>> {
        let taking = async {
            loop {
                if let Ok(snapshot) = Snapshot::take(server) {
                    return Arc::new(snapshot);
                }
                sleep(SCRIPT_LOOK).await;
            }
        };
        match timeout(SCRIPT_PATIENCE, taking).await {
            Ok(snapshot) => *self.last.borrow_mut() = Some(snapshot),
            Err(_held_up) => {}
        }
        self.last.borrow().clone()
    }
}

/// Says whether nothing is as bad as that.
fn probe(server: &Server, at_least: Severity) -> Response<Full<Bytes>> {
    match worst(&problems(server), at_least) {
        Some(problem) => unavailable(&problem),
        None => respond(StatusCode::OK, TEXT, "ok\n".to_owned()),
    }
}

/// What one that follows is: it is ready if it has a leader, and lives in any case.
fn follows(set: &ReplicaSet, is_fine_alone: bool) -> Response<Full<Bytes>> {
    let view = set.view();
    match view.leader().filter(|(leader, _)| view.own != Some(*leader)) {
        Some((_, address)) => respond(StatusCode::OK, TEXT, format!("follows {address}\n")),
        None if is_fine_alone => respond(StatusCode::OK, TEXT, "waits for a leader\n".to_owned()),
        None => unavailable("the replica set has no leader, or this one is about to lead"),
    }
}

fn unavailable(why: &str) -> Response<Full<Bytes>> {
    respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n"))
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers: [(HeaderName, &'static str); 3] =
        [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store"), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
