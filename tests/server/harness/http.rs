//! Requests to the port for metrics.

use super::PATIENCE;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

/// A connection to the port.
pub fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

/// A response.
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Its headers, in small letters.
    pub head: String,
    /// What follows.
    pub body: String,
}

/// Sends bytes and returns the response; `None`: the connection was closed without one.
pub fn exchange(port: u16, request: &[u8]) -> Option<Response> {
    let mut socket = connect(port);
    socket.write_all(request).expect("it is sent");
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("no end of the response: {e}"),
    }
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Some(Response { status, head: head.to_lowercase(), body: body.to_owned() })
}

/// Asks for a page.
pub fn request(port: u16, method: &str, path: &str) -> Response {
    exchange(port, format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .expect("a response")
}

/// The status and the text of a page.
pub fn get(port: u16, path: &str) -> (u16, String) {
    let response = request(port, "GET", path);
    (response.status, response.body)
}
