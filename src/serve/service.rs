//! What a service manager is told, as systemd's sd_notify does it: a datagram to the socket that it has named.

use crate::admin::log::log;
use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};
use tokio::time::{self, MissedTickBehavior};

/// What the server has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It reads its data.
    Starts,
    /// It serves clients.
    Serves,
    /// It serves no more, and makes everything durable.
    Ends,
}

/// Tells the service manager, if there is one.
pub fn tell(state: State) {
    let text = match state {
        State::Starts => "STATUS=Opening the data folder",
        State::Serves => "READY=1\nSTATUS=Serving clients",
        State::Ends => "STOPPING=1\nSTATUS=Making everything durable",
    };
    if let Err(e) = send(text) {
        log!(Warning, "cannot tell the service manager ({e}): {state:?}");
    }
}

/// Tells it that another process serves from now on.
pub fn tell_main_process(process: u32) {
    if let Err(e) = send(&format!("MAINPID={process}\nREADY=1\nSTATUS=Serving clients")) {
        log!(Warning, "cannot tell the service manager ({e}): process {process} serves");
    }
}

/// Tells it from time to time that the server is alive, if it wants to know (`WatchdogSec=` of a unit).
pub async fn tell_alive() {
    // Which process it means, by WATCHDOG_PID, is the one that has served before after an upgrade.
    let us = env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse::<u64>().ok());
    let Some(us) = us.filter(|&us| us > 1) else { return };
    let mut ticks = time::interval(Duration::from_micros(us / 2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // If it does not hear, it does what it does.
        let _ = send("WATCHDOG=1");
    }
}

fn send(text: &str) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(drop)
}
