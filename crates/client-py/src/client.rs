//! The client, and which request is for whom when it is done.

use crate::{
    argument::{self, Argument},
    buffer::{LentTarget, Returned},
    error, reply,
    request::Request,
};
use holdfast_client::{Command, Config, Error, Protocol, RequestId, Target, Tls};
use parking_lot::Mutex;
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::PyValueError,
    prelude::*,
    types::{PyString, PyTuple},
};
use std::{
    collections::{HashMap, VecDeque},
    iter, mem,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    process,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// A wait is interrupted this often, to see whether Ctrl-C was pressed, or the client closed.
const LOOK: Duration = Duration::from_millis(100);

/// Seconds as Python counts them: none, or infinitely many, are for ever, and less than none are none.
pub fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err("a time-out is a number of seconds")),
        // A time that is too long to be told is for ever.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds.max(0.0)).ok()),
    }
}

/// A client of one server, or of several with keys spread by hash slot.
///
/// servers: "HOST:PORT", "[IPv6]:PORT" or the path of a Unix socket, or a sequence of such addresses.
/// user, password, name, database: what each connection says first.
/// tls_ca_file: a PEM file with the certificates of those who sign servers; with it, TLS is spoken.
/// tls_cert_file, tls_key_file: PEM files with the client's own certificate and key.
/// tls_server_name: the name in the servers' certificates, if it is another one than the host's.
/// protocol: 3 for RESP3, 2 for RESP2.
/// thread: whether a thread of the client's own makes progress; else it is made in calls only.
/// requests_max: requests in flight, or done and not asked for their result.
/// bytes_max: bytes of requests in flight and of such results.
/// reply_bytes_max: bytes of one reply.
/// request_timeout: seconds that a request may take; None for any time.
/// connect_timeout: seconds that a connection may take to be made.
/// resends_max: times that a request may be sent again.
///
/// Connections are made when the first request needs them. All threads may use a client; a process made by fork may not.
#[pyclass(frozen, module = "holdfast")]
pub struct Client {
    /// None once it is closed. Locked for moments only, by threads that have the GIL.
    core: Mutex<Option<Arc<holdfast_client::Client>>>,
    pub returned: Arc<Returned>,
    /// The process that may use it.
    pid: u32,
    /// The same as the core's; open as long as this, since a loop may still watch it when the client is closed.
    /// Set when it is asked for: a client that is watched sends more often.
    event: OnceLock<OwnedFd>,
    /// Requests that are to be told by `next_completion`, and were not found done.
    listed: Mutex<HashMap<RequestId, Py<Request>>>,
    /// Those that were.
    ready: Mutex<VecDeque<Py<Request>>>,
    /// Futures that are to be told of a request.
    awaited: Mutex<HashMap<RequestId, Vec<Py<PyAny>>>>,
}

impl Client {
    /// The client underneath, as long as it is open.
    pub fn core(&self, py: Python<'_>) -> PyResult<Arc<holdfast_client::Client>> {
        if process::id() != self.pid {
            return Err(error::closed(py, "the client belongs to the process before the fork"));
        }
        self.core.lock().clone().ok_or_else(|| error::closed(py, "the client is closed"))
    }

    /// Whether this process may use it, and it was not closed.
    fn is_open(&self) -> bool {
        process::id() == self.pid && self.core.lock().is_some()
    }

    /// Calls the client without the GIL, and gives back to Python what it has dropped.
    pub fn without_gil<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&holdfast_client::Client) -> R + Send,
    ) -> PyResult<R> {
        let core = self.core(py)?;
        let result = py.detach(move || {
            let result = call(&core);
            // It may be the last one that uses it.
            drop(core);
            result
        });
        self.returned.release(py);
        Ok(result)
    }

    /// The same for those whom it does not trouble if the client is closed.
    pub fn without_gil_if_open<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&holdfast_client::Client) -> R + Send,
    ) -> Option<R> {
        if self.is_open() { self.without_gil(py, call).ok() } else { None }
    }

    /// Calls `step` with times to wait for until it says that what is waited for has come about, or for so long.
    pub fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut step: impl FnMut(&holdfast_client::Client, Duration) -> Result<bool, Error> + Send,
    ) -> PyResult<bool> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = left.map_or(LOOK, |left| left.min(LOOK));
            let done = self.without_gil(py, |core| step(core, wait))?;
            if done.map_err(|e| error::exception(py, &e))? {
                return Ok(true);
            }
            py.check_signals()?;
            if left.is_some_and(|left| left <= wait) {
                return Ok(false);
            }
        }
    }

    /// Hands a command over, waits for the reply, and returns it.
    fn call<'py>(&self, py: Python<'py>, command: Command<'_>) -> PyResult<Bound<'py, PyAny>> {
        let (mut command, mut id, mut result) = (Some(command), None, None);
        let waited = self.wait(py, None, |core, wait| {
            if let Some(command) = command.take() {
                id = Some(core.submit(command)?);
            }
            let id = id.expect("it was submitted");
            if core.wait(id, Some(wait))? {
                result = Some(core.take(id));
            }
            Ok(result.is_some())
        });
        if let (Err(_), Some(id)) = (&waited, id) {
            // It was interrupted, or the client was closed.
            self.without_gil_if_open(py, |core| core.release(id));
        }
        waited.map_err(|e| if id.is_some() { error::closed_meanwhile(py, e) } else { e })?;
        let result = result.expect("it was waited for");
        reply::object(py, &result.map_err(|e| error::exception(py, &e))?)
    }

    /// Hands a command over.
    fn hand_over<'py>(slf: &Bound<'py, Self>, command: Command<'_>) -> PyResult<Bound<'py, Request>> {
        let py = slf.py();
        let id = slf.get().without_gil(py, |core| core.submit(command))?;
        let id = id.map_err(|e| error::exception(py, &e))?;
        Bound::new(py, Request::new(slf.clone().unbind(), id))
    }

    /// Adds the buffer that the reply is to go into, if there is one.
    fn with_out<'a>(&self, command: Command<'a>, out: Option<&Bound<'_, PyAny>>) -> PyResult<Command<'a>> {
        Ok(match out {
            Some(out) => command.into(Target::Lent(Box::new(LentTarget::new(out, &self.returned)?))),
            None => command,
        })
    }

    /// The result of a request was taken, or it was released: the client tells nobody of it, but for those who await it,
    /// who look for themselves.
    pub fn forget(&self, py: Python<'_>, id: RequestId) -> PyResult<()> {
        let (listed, awaited) = (self.listed.lock().remove(&id), self.awaited.lock().remove(&id));
        // Dropped without the locks.
        drop(listed);
        wake(py, awaited.unwrap_or_default())
    }

    /// Finds requests that are done: listed ones are ready then, and the futures of awaited ones are returned.
    fn sort_completions(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let done: Vec<RequestId> =
            self.without_gil(py, |core| iter::from_fn(|| core.next_completion()).collect())?;
        let mut futures = Vec::new();
        for id in done {
            let request = self.listed.lock().remove(&id);
            self.ready.lock().extend(request);
            futures.extend(self.awaited.lock().remove(&id).into_iter().flatten());
        }
        Ok(futures)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let core = self.core.get_mut().take();
        if process::id() != self.pid {
            // The sockets are the other process's, and so is the thread; the locks may be held for ever.
            return mem::forget(core);
        }
        Python::try_attach(|py| {
            py.detach(|| drop(core));
            self.returned.release(py);
        });
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (servers, *, user=None, password=None, name=None, database=0, tls_ca_file=None, tls_cert_file=None,
        tls_key_file=None, tls_server_name=None, protocol=3, thread=false, requests_max=65_536, bytes_max=1_073_741_824,
        reply_bytes_max=1_073_741_824, request_timeout=30.0, connect_timeout=5.0, resends_max=5))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        servers: &Bound<'_, PyAny>,
        user: Option<String>,
        password: Option<String>,
        name: Option<String>,
        database: u32,
        tls_ca_file: Option<PathBuf>,
        tls_cert_file: Option<PathBuf>,
        tls_key_file: Option<PathBuf>,
        tls_server_name: Option<String>,
        protocol: u8,
        thread: bool,
        requests_max: usize,
        bytes_max: usize,
        reply_bytes_max: usize,
        request_timeout: Option<f64>,
        connect_timeout: f64,
        resends_max: u32,
    ) -> PyResult<Client> {
        let servers: Vec<String> = match servers.cast::<PyString>() {
            Ok(server) => vec![server.extract()?],
            Err(_) => servers.try_iter()?.map(|server| server?.extract()).collect::<PyResult<_>>()?,
        };
        let invalid = |what: &'static str| Err(PyValueError::new_err(what));
        let mut config = Config::new(servers).map_err(|e| error::exception(py, &e))?;
        (config.user, config.password, config.name) = (user, password, name);
        (config.database, config.thread, config.resends_max) = (database, thread, resends_max);
        config.protocol = match protocol {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return invalid("the protocol is 2 or 3"),
        };
        config.tls = match (tls_ca_file, tls_cert_file, tls_key_file) {
            (Some(ca_file), Some(cert), Some(key)) => {
                Some(Tls { ca_file, identity: Some((cert, key)), server_name: tls_server_name })
            }
            (Some(ca_file), None, None) => {
                Some(Tls { ca_file, identity: None, server_name: tls_server_name })
            }
            (None, None, None) if tls_server_name.is_none() => None,
            (None, ..) => return invalid("TLS needs tls_ca_file"),
            _ => return invalid("a certificate needs its key: tls_cert_file and tls_key_file"),
        };
        (config.requests_max, config.bytes_max) = (requests_max, bytes_max);
        config.reply_bytes_max = reply_bytes_max;
        config.request_timeout = duration(request_timeout)?;
        config.connect_timeout = match duration(Some(connect_timeout))? {
            Some(timeout) => timeout,
            None => return invalid("connect_timeout is a number of seconds"),
        };
        let core =
            py.detach(|| holdfast_client::Client::new(config)).map_err(|e| error::exception(py, &e))?;
        Ok(Client {
            core: Mutex::new(Some(Arc::new(core))),
            returned: Arc::default(),
            pid: process::id(),
            event: OnceLock::new(),
            listed: Mutex::default(),
            ready: Mutex::default(),
            awaited: Mutex::default(),
        })
    }

    /// Gets a string as bytes; None if there is no such key.
    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut args = [Argument::name("GET"), Argument::read(key)?];
        self.call(py, argument::command(&mut args, false, &self.returned).read_only())
    }

    /// Gets a string right into a writable buffer, such as an array; returns its length in bytes, or None if there is no
    /// such key.
    fn get_into<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut args = [Argument::name("GET"), Argument::read(key)?];
        let command = argument::command(&mut args, false, &self.returned).read_only();
        self.call(py, self.with_out(command, Some(out))?)
    }

    /// Sets a string: bytes, a str in UTF-8, a number as text, or what a buffer (an array) has in memory.
    fn set(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut args = [Argument::name("SET"), Argument::read(key)?, Argument::read(value)?];
        // Lent, not copied, since this waits until it is done.
        self.call(py, argument::command(&mut args, true, &self.returned)).map(drop)
    }

    /// Deletes a key; whether there was one.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut args = [Argument::name("DEL"), Argument::read(key)?];
        self.call(py, argument::command(&mut args, false, &self.returned))?.is_truthy()
    }

    /// Whether there is such a key.
    fn exists(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut args = [Argument::name("EXISTS"), Argument::read(key)?];
        self.call(py, argument::command(&mut args, false, &self.returned).read_only())?.is_truthy()
    }

    /// Executes any command and returns the reply. See submit for what the keywords say.
    #[pyo3(signature = (*args, key=Some(1), read_only=false, untimed=false, out=None))]
    #[pyo3(text_signature = "($self, *args, key=1, read_only=False, untimed=False, out=None)")]
    fn command<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        key: Option<usize>,
        read_only: bool,
        untimed: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let objects = argument::objects(args);
        let mut args = argument::arguments(&objects)?;
        let command = argument::command(&mut args, true, &self.returned).key(key);
        let command = if read_only { command.read_only() } else { command };
        let command = if untimed { command.untimed() } else { command };
        self.call(py, self.with_out(command, out)?)
    }

    /// Hands a SET over. The value is the library's until the request's buffer is free: an array may be read meanwhile, and
    /// not be changed.
    fn iset<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Request>> {
        let mut args = [Argument::name("SET"), Argument::read(key)?, Argument::read(value)?];
        Client::hand_over(slf, argument::command(&mut args, true, &slf.get().returned))
    }

    /// Hands a SET over. The value is copied: it is the caller's again on return.
    fn bset<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Request>> {
        let mut args = [Argument::name("SET"), Argument::read(key)?, Argument::read(value)?];
        Client::hand_over(slf, argument::command(&mut args, false, &slf.get().returned))
    }

    /// Hands a GET over, whose string goes right into a writable buffer. It is the library's until the request is done. The
    /// result is the string's length in bytes, or None if there is no such key.
    fn iget<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Request>> {
        let mut args = [Argument::name("GET"), Argument::read(key)?];
        let command = argument::command(&mut args, false, &slf.get().returned).read_only();
        Client::hand_over(slf, slf.get().with_out(command, Some(out))?)
    }

    /// Hands a GET over, whose result is bytes, or None if there is no such key.
    fn bget<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Request>> {
        let mut args = [Argument::name("GET"), Argument::read(key)?];
        Client::hand_over(slf, argument::command(&mut args, false, &slf.get().returned).read_only())
    }

    /// Hands any command over: its name and arguments, which are bytes, str, numbers or buffers.
    ///
    /// key: which argument is the first key, the name being argument 0; None for a command that has none.
    /// read_only: the command changes nothing, so that it may be executed again after a lost connection.
    /// listed: the request is to be told by next_completion. The client keeps it until then.
    /// untimed: the request may take as long as it likes, e.g. BLPOP.
    /// lend: long buffers are the library's until the request's buffer is free; else they are copied.
    /// out: a writable buffer for the reply, if that is a string; its length is the result then.
    #[pyo3(signature = (*args, key=Some(1), read_only=false, listed=false, untimed=false, lend=false, out=None))]
    #[pyo3(
        text_signature = "($self, *args, key=1, read_only=False, listed=False, untimed=False, lend=False, out=None)"
    )]
    #[allow(clippy::too_many_arguments)]
    fn submit<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        key: Option<usize>,
        read_only: bool,
        listed: bool,
        untimed: bool,
        lend: bool,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Request>> {
        let this = slf.get();
        let objects = argument::objects(args);
        let mut args = argument::arguments(&objects)?;
        let command = argument::command(&mut args, lend, &this.returned).key(key);
        let command = if read_only { command.read_only() } else { command };
        let command = if untimed { command.untimed() } else { command };
        let request = Client::hand_over(slf, this.with_out(command, out)?)?;
        if listed {
            let id = request.get().id();
            this.listed.lock().insert(id, request.clone().unbind());
            // Not before, lest another thread finds it done and does not know it.
            let listed = this.without_gil(slf.py(), |core| core.list(id))?;
            listed.map_err(|e| error::exception(slf.py(), &e))?;
        }
        Ok(request)
    }

    /// Sends what waits to be sent, without waiting for anything.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.without_gil(py, holdfast_client::Client::flush)
    }

    /// Makes progress, and waits no longer than so many seconds for a request to be done, whichever; None for any time.
    /// Returns whether one was.
    #[pyo3(signature = (timeout=0.0))]
    fn progress(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        // Counted from the beginning: another thread may end requests between two pieces of the wait.
        let mut before = None;
        self.wait(py, duration(timeout)?, |core, wait| {
            let before = *before.get_or_insert_with(|| core.outcomes());
            Ok(core.progress_since(before, wait))
        })
    }

    /// The next request that was to be listed and is done; None if there is none. Each comes once, unless its result was
    /// taken before.
    fn next_completion<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Request>>> {
        loop {
            let ready = self.ready.lock().pop_front();
            if let Some(request) = ready {
                if request.get().is_taken() {
                    continue;
                }
                return Ok(Some(request.into_bound(py)));
            }
            let futures = self.sort_completions(py)?;
            wake(py, futures)?;
            if self.ready.lock().is_empty() {
                return Ok(None);
            }
        }
    }

    /// A descriptor that is readable when progress, and then next_completion, are to be called. It is the client's: it must
    /// not be read from or closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let event = self.without_gil(py, |core| core.event_fd().try_clone_to_owned())??;
        Ok(self.event.get_or_init(|| event).as_raw_fd())
    }

    /// Requests that are not done.
    #[getter]
    fn in_flight(&self, py: Python<'_>) -> PyResult<usize> {
        self.without_gil(py, holdfast_client::Client::in_flight)
    }

    /// Has a future told of a request by `_completed`, or when the client is closed.
    fn _notify(&self, py: Python<'_>, request: &Bound<'_, Request>, future: Py<PyAny>) -> PyResult<()> {
        let id = request.get().id();
        self.awaited.lock().entry(id).or_default().push(future);
        match self.without_gil(py, |core| core.list(id)) {
            Ok(Ok(())) => Ok(()),
            // Another thread has taken the result meanwhile, or released it.
            Ok(Err(_)) => self.forget(py, id),
            Err(closed) => {
                self.forget(py, id)?;
                Err(error::closed_meanwhile(py, closed))
            }
        }
    }

    /// The futures of requests that are done.
    fn _completed(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.sort_completions(py)
    }

    /// Closes the client. Its requests end, and all buffers are free once other threads' calls have returned.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if process::id() != self.pid {
            return Ok(());
        }
        let core = self.core.lock().take();
        py.detach(|| drop(core));
        self.returned.release(py);
        let listed = mem::take(&mut *self.listed.lock());
        let ready = mem::take(&mut *self.ready.lock());
        let awaited = mem::take(&mut *self.awaited.lock());
        drop((listed, ready));
        wake(py, awaited.into_values().flatten().collect())
    }

    /// Whether the client is closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.is_open()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.without_gil_if_open(py, holdfast_client::Client::in_flight) {
            Some(in_flight) => format!("<holdfast.Client with {in_flight} requests in flight>"),
            None => "<holdfast.Client, closed>".into(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What is locked is in use.
        if let Some(listed) = self.listed.try_lock() {
            listed.values().try_for_each(|request| visit.call(request))?;
        }
        if let Some(ready) = self.ready.try_lock() {
            ready.iter().try_for_each(|request| visit.call(request))?;
        }
        if let Some(awaited) = self.awaited.try_lock() {
            awaited.values().flatten().try_for_each(|future| visit.call(future))?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let listed = mem::take(&mut *self.listed.lock());
        let ready = mem::take(&mut *self.ready.lock());
        let awaited = mem::take(&mut *self.awaited.lock());
        drop((listed, ready, awaited));
    }
}

/// Tells futures, each in its own loop.
fn wake(py: Python<'_>, futures: Vec<Py<PyAny>>) -> PyResult<()> {
    if !futures.is_empty() {
        py.import("holdfast._asyncio")?.call_method1("wake", (futures,))?;
    }
    Ok(())
}
