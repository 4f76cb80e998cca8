//! Messages to the system's log: a datagram each to its Unix socket, in the format that every daemon there reads (RFC 3164).

use crate::config::options::SYSLOG_FACILITIES;
use jiff::Zoned;
use std::{io, os::unix::net::UnixDatagram, process};

const SOCKET: &str = "/dev/log";
/// Numbers of the choices of the option `syslog-facility`.
const FACILITIES: [u8; SYSLOG_FACILITIES.len()] = [1, 16, 17, 18, 19, 20, 21, 22, 23];

/// The way to the system's log.
#[derive(Debug)]
pub struct Syslog {
    socket: UnixDatagram,
    ident: String,
    facility: u8,
}

impl Syslog {
    /// Messages of a program by this name, to one of [`SYSLOG_FACILITIES`]. The daemon need not be there yet.
    pub fn new(ident: String, facility: usize) -> io::Result<Syslog> {
        let socket = UnixDatagram::unbound()?;
        // A daemon that stands still must not have the server do so.
        socket.set_nonblocking(true)?;
        Ok(Syslog { socket, ident, facility: FACILITIES[facility] })
    }

    /// Sends a message of a severity (0 to 7), unless the daemon is not there or takes none now.
    pub fn send(&self, severity: u8, message: &str) {
        let priority = self.facility * 8 + severity;
        let time = Zoned::now().strftime("%b %e %H:%M:%S").to_string();
        let (ident, pid) = (&self.ident, process::id());
        let line = format!("<{priority}>{time} {ident}[{pid}]: {}", message.replace('\n', " "));
        // By the name each time: the daemon may have been restarted. There is nowhere to report that reporting failed.
        let _ = self.socket.send_to(line.as_bytes(), SOCKET);
    }
}
