//! The way to who accepts clients.

use std::sync::{Mutex, mpsc};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Asks who accepts clients to listen where the options say now; what came of it is sent back.
pub type Request = mpsc::SyncSender<Result<(), String>>;

/// The way to who accepts clients, once it does.
#[derive(Default)]
pub struct Acceptor(Mutex<Option<UnboundedSender<Request>>>);

impl Acceptor {
    /// Whoever calls this accepts clients from now on, and answers the requests.
    pub fn begin(&self) -> UnboundedReceiver<Request> {
        let (acceptor, requests) = unbounded_channel();
        *self.0.lock().expect("no holder panics") = Some(acceptor);
        requests
    }

    /// Listens where the options say now. What fails leaves it where it was.
    pub fn follow(&self) -> Result<(), String> {
        let Some(acceptor) = self.0.lock().expect("no holder panics").clone() else { return Ok(()) };
        let (answer, answered) = mpsc::sync_channel(1);
        // Who accepts no more is about to end, or looks at the options when it accepts again.
        if acceptor.send(answer).is_err() {
            return Ok(());
        }
        answered.recv().unwrap_or(Ok(()))
    }
}
