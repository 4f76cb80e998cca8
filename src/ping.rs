//! `holdfast ping`: whether a server answers, for the health checks of containers and scripts.

use crate::import::{Address, Login};
use crate::util::console::outln;
use holdfast_resp::Reply;
use std::{io, time::Duration};

const PATIENCE: Duration = Duration::from_secs(5);

/// Whom to ask.
pub struct Request {
    /// Where the server listens.
    pub address: Address,
    /// Who asks.
    pub login: Login,
}

/// Asks, and prints the answer; the error says why there is none, or which other.
pub fn ping(request: &Request) -> Result<(), String> {
    let Request { address, login } = request;
    let failed = |e: io::Error| format!("{address}: {e}");
    let connection = address.connect(PATIENCE).and_then(|it| it.log_in(login));
    match connection.and_then(|mut it| it.call(&[b"PING"])).map_err(failed)? {
        Reply::Simple(text) if text == b"PONG" => {
            outln!("PONG");
            Ok(())
        }
        reply => Err(format!("{address}: an unexpected answer, {reply:?}")),
    }
}
