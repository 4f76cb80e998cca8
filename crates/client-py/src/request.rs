//! Requests, and waiting for several.

use crate::{
    client::{Client, duration},
    error, reply,
};
use holdfast_client::{Error, Reply, RequestId, State};
use parking_lot::Mutex;
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyResourceWarning, PyTimeoutError, PyValueError},
    prelude::*,
};
use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// What the client says of a request that is done.
type Outcome = Result<Reply, Error>;

enum Slot {
    /// The client has the result, or will have it.
    Untaken,
    /// Not yet an object, or an error, of which each caller gets an exception of its own.
    Taken(Arc<Outcome>),
    Object(Py<PyAny>),
    Released,
}

/// A request that was handed over. It can be waited for, also by "await", and its result asked for, by any thread and
/// more than once. When the last reference to it is gone it is released: if it is not done, it is cancelled, with a
/// ResourceWarning.
#[pyclass(frozen, module = "holdfast")]
pub struct Request {
    client: Py<Client>,
    id: RequestId,
    /// Locked for moments only, by threads that have the GIL, and not while objects are made or dropped.
    slot: Mutex<Slot>,
}

impl Request {
    pub fn new(client: Py<Client>, id: RequestId) -> Request {
        Request { client, id, slot: Mutex::new(Slot::Untaken) }
    }

    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Whether the client has given the result away.
    pub fn is_taken(&self) -> bool {
        !matches!(*self.slot.lock(), Slot::Untaken)
    }

    /// The same; an error if it was released.
    fn is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        match *self.slot.lock() {
            Slot::Untaken => Ok(false),
            Slot::Taken(_) | Slot::Object(_) => Ok(true),
            Slot::Released => Err(error::released(py)),
        }
    }

    /// Waits until the request has come so far, or for so long; whether it has.
    fn wait_for(&self, py: Python<'_>, state: State, timeout: Option<Duration>) -> PyResult<bool> {
        if self.is_finished(py)? {
            return Ok(true);
        }
        let reached = self.client.get().wait(py, timeout, |core, wait| {
            match core.wait_for(self.id, state, Some(wait)) {
                // Another thread has taken the result meanwhile, or released it.
                Err(Error::NoSuchRequest) => Ok(true),
                now => Ok(now? >= state),
            }
        });
        let reached = reached.map_err(|e| error::closed_meanwhile(py, e))?;
        self.is_finished(py)?;
        Ok(reached)
    }

    /// Takes the result out of the client, if it is there and nobody has done so.
    fn take(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_finished(py)? {
            return Ok(());
        }
        let client = self.client.get();
        let taken = client.without_gil(py, |core| {
            // Two threads may be here: the second one finds the result in the slot.
            let mut slot = self.slot.lock();
            if let Slot::Untaken = *slot {
                *slot = match core.take(self.id) {
                    Err(Error::InProgress) => return Ok(()),
                    Err(Error::NoSuchRequest) => return Err(Error::NoSuchRequest),
                    outcome => Slot::Taken(Arc::new(outcome)),
                };
            }
            Ok(())
        });
        let taken = taken.map_err(|e| error::closed_meanwhile(py, e))?;
        client.forget(py, self.id)?;
        taken.map_err(|e| error::exception(py, &e))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !matches!(self.slot.get_mut(), Slot::Untaken) {
            return;
        }
        Python::try_attach(|py| {
            // An exception may be on its way through the function that had the request.
            let pending = PyErr::take(py);
            let cancelled = self.client.get().without_gil_if_open(py, |core| {
                let in_progress = core.peek(self.id, |_, _| ()) == Err(Error::InProgress);
                core.release(self.id).is_ok() && in_progress
            });
            if let Err(error) = self.client.get().forget(py, self.id) {
                error.write_unraisable(py, None);
            }
            if cancelled == Some(true) {
                let kind = py.get_type::<PyResourceWarning>();
                let text = c"a request that was not done is cancelled, since nothing refers to it any more";
                if let Err(error) = PyErr::warn(py, &kind, text, 1) {
                    error.write_unraisable(py, None);
                }
            }
            if let Some(error) = pending {
                error.restore(py);
            }
        });
    }
}

#[pymethods]
impl Request {
    /// The request's client.
    #[getter]
    fn client<'py>(&self, py: Python<'py>) -> Bound<'py, Client> {
        self.client.bind(py).clone()
    }

    /// Whether the request is known to be done, without making progress.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_finished(py)? {
            return Ok(true);
        }
        let looked = self.client.get().without_gil(py, |core| core.peek(self.id, |_, _| ()));
        match looked.map_err(|e| error::closed_meanwhile(py, e))? {
            Ok(()) => Ok(true),
            Err(Error::InProgress) => Ok(false),
            // Another thread has taken the result meanwhile, or released it.
            Err(_) => self.is_finished(py),
        }
    }

    /// Makes what progress there is without waiting; whether the request is done.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait_for(py, State::Done, Some(Duration::ZERO))
    }

    /// Makes what progress there is without waiting; whether what was handed over for sending is the caller's again.
    fn test_buffer(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait_for(py, State::BufferFree, Some(Duration::ZERO))
    }

    /// Waits until the request is done, or for so many seconds; whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for(py, State::Done, duration(timeout)?)
    }

    /// Waits until what was handed over for sending is the caller's again, or for so many seconds; whether it is.
    #[pyo3(signature = (timeout=None))]
    fn wait_buffer(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_for(py, State::BufferFree, duration(timeout)?)
    }

    /// Waits for the reply and returns it, or raises what went wrong. If the request is not done after so many seconds,
    /// TimeoutError is raised, and the request goes on.
    #[pyo3(signature = (timeout=None))]
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        if !self.wait_for(py, State::Done, duration(timeout)?)? {
            return Err(PyTimeoutError::new_err("the request is not done"));
        }
        self.take(py)?;
        let outcome = match &*self.slot.lock() {
            Slot::Taken(outcome) => Arc::clone(outcome),
            Slot::Object(object) => return Ok(object.bind(py).clone()),
            Slot::Untaken | Slot::Released => return Err(error::released(py)),
        };
        let object = match &*outcome {
            Ok(reply) => reply::object(py, reply)?,
            Err(error) => return Err(error::exception(py, error)),
        };
        let mut slot = self.slot.lock();
        match &*slot {
            // Another thread has made one meanwhile: all get the same.
            Slot::Object(object) => Ok(object.bind(py).clone()),
            _ => {
                *slot = Slot::Object(object.clone().unbind());
                Ok(object)
            }
        }
    }

    /// Ends the request, if it is not done: all its buffers are the caller's again, and its result says whether the server may
    /// have executed it.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_finished(py)? {
            return Ok(());
        }
        let cancelled = self.client.get().without_gil(py, |core| core.cancel(self.id))?;
        match cancelled {
            // Another thread has taken the result meanwhile, or released it.
            Err(Error::NoSuchRequest) => self.is_finished(py).map(drop),
            cancelled => cancelled.map_err(|e| error::exception(py, &e)),
        }
    }

    /// Lets go of the request and its result; it is cancelled if it is not done. Nothing can be done with it afterwards.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let release = |core: Option<&holdfast_client::Client>| {
            let mut slot = self.slot.lock();
            if let (Slot::Untaken, Some(core)) = (&*slot, core) {
                // It is there: who takes it needs the slot.
                let _ = core.release(self.id);
            }
            mem::replace(&mut *slot, Slot::Released)
        };
        let client = self.client.get();
        let slot = match client.without_gil_if_open(py, |core| release(Some(core))) {
            Some(slot) => slot,
            None => release(None),
        };
        // An object in it may do anything when it is dropped, but not with the lock.
        drop(slot);
        client.forget(py, self.id)
    }

    /// Waits in a task of asyncio, while others go on. A task that is cancelled cancels the request.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let outcome = slf.py().import("holdfast._asyncio")?.call_method1("outcome", (slf,))?;
        outcome.call_method0("__await__")
    }

    fn __repr__(&self, py: Python<'_>) -> &'static str {
        match self.done(py) {
            Ok(true) => "<holdfast.Request, done>",
            Ok(false) => "<holdfast.Request, not done>",
            Err(_) => "<holdfast.Request, released or its client closed>",
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.client)
    }
}

/// The requests of a list, a set or the like; they must be of one client.
fn collect<'py>(requests: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Request>>> {
    let requests = requests.try_iter()?.map(|request| Ok(request?.cast_into::<Request>()?));
    let requests: Vec<Bound<Request>> = requests.collect::<PyResult<_>>()?;
    if let Some((first, rest)) = requests.split_first()
        && rest.iter().any(|request| !request.get().client.is(&first.get().client))
    {
        return Err(PyValueError::new_err("requests of several clients cannot be waited for together"));
    }
    Ok(requests)
}

/// Waits until one of the requests, all of one client, is done, or for so many seconds; returns it, or None.
#[pyfunction]
#[pyo3(signature = (requests, timeout=None))]
pub fn wait_any<'py>(
    requests: &Bound<'py, PyAny>,
    timeout: Option<f64>,
) -> PyResult<Option<Bound<'py, Request>>> {
    Ok(wait_some(requests, timeout)?.into_iter().next())
}

/// Waits until at least one of the requests, all of one client, is done, or for so many seconds; returns those that are.
#[pyfunction]
#[pyo3(signature = (requests, timeout=None))]
pub fn wait_some<'py>(
    requests: &Bound<'py, PyAny>,
    timeout: Option<f64>,
) -> PyResult<Vec<Bound<'py, Request>>> {
    let (py, timeout) = (requests.py(), duration(timeout)?);
    let requests = collect(requests)?;
    let Some(first) = requests.first() else {
        return Err(PyValueError::new_err("there are no requests to wait for"));
    };
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let mut finished = is_finished(py, &requests)?;
        let waiting: Vec<usize> = (0..requests.len()).filter(|&at| !finished[at]).collect();
        if waiting.is_empty() {
            return Ok(requests);
        }
        let ids: Vec<RequestId> = waiting.iter().map(|&at| requests[at].get().id).collect();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = if finished.contains(&true) { Some(Duration::ZERO) } else { left };
        let mut done = Some(Vec::new());
        let waited = first.get().client.get().wait(py, left, |core, wait| {
            done = match core.wait_some(&ids, Some(wait)) {
                // Another thread has taken or released one meanwhile: look again which.
                Err(Error::NoSuchRequest) => None,
                done => Some(done?),
            };
            Ok(done.as_ref().is_none_or(|done| !done.is_empty()))
        });
        waited.map_err(|e| error::closed_meanwhile(py, e))?;
        let Some(done) = done else { continue };
        done.into_iter().for_each(|at| finished[waiting[at]] = true);
        return Ok(requests
            .into_iter()
            .zip(finished)
            .filter_map(|(request, is)| is.then_some(request))
            .collect());
    }
}

/// Waits until all the requests, all of one client, are done, or for so many seconds; whether they are.
#[pyfunction]
#[pyo3(signature = (requests, timeout=None))]
pub fn wait_all(requests: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<bool> {
    let (py, timeout) = (requests.py(), duration(timeout)?);
    let requests = collect(requests)?;
    let Some(first) = requests.first() else { return Ok(true) };
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let finished = is_finished(py, &requests)?;
        let waiting = requests.iter().zip(finished).filter(|(_, finished)| !finished);
        let ids: Vec<RequestId> = waiting.map(|(request, _)| request.get().id).collect();
        if ids.is_empty() {
            return Ok(true);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut stale = false;
        let all =
            first.get().client.get().wait(py, left, |core, wait| match core.wait_all(&ids, Some(wait)) {
                // As above.
                Err(Error::NoSuchRequest) => {
                    stale = true;
                    Ok(true)
                }
                all => all,
            });
        let all = all.map_err(|e| error::closed_meanwhile(py, e))?;
        if !stale {
            return Ok(all);
        }
    }
}

/// Of each request whether it is finished; an error if one was released.
fn is_finished(py: Python<'_>, requests: &[Bound<'_, Request>]) -> PyResult<Vec<bool>> {
    requests.iter().map(|request| request.get().is_finished(py)).collect()
}
