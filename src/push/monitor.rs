//! MONITOR: clients that are shown all commands.

use crate::{
    clients::client::{Client, flag},
    command::{
        Command,
        redact::{REDACTED, is_secret},
    },
    push::{
        pubsub::Audience,
        queue::{Payload, PushQueues},
    },
};
use holdfast_resp::Args;
use std::{
    io::Write,
    sync::{
        RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// The clients that are shown all commands.
#[derive(Default)]
pub struct Monitors {
    clients: RwLock<Audience>,
    count: AtomicUsize,
}

impl Monitors {
    /// Whether there are any.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Shows a client all commands from now on.
    pub fn begin(&self, client: &Client) {
        if !client.has_flag(flag::MONITOR) {
            client.set_flag(flag::MONITOR, true);
            self.clients.write().expect("no holder panics").add(client.worker, client.id);
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// Shows a client no more.
    pub fn end(&self, client: &Client) {
        if client.has_flag(flag::MONITOR) {
            client.set_flag(flag::MONITOR, false);
            self.clients.write().expect("no holder panics").remove(client.worker, client.id);
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// Shows all of them a call in a database, which a client has sent, or a script of it makes.
    #[cold]
    pub fn show(
        &self,
        queues: &PushQueues,
        client: &Client,
        in_script: bool,
        db: usize,
        command: &Command,
        args: Args,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let source = match client.addr.strip_suffix(":0").filter(|_| client.has_flag(flag::UNIX)) {
            _ if in_script => "lua".to_owned(),
            Some(path) => format!("unix:{path}"),
            None => client.addr.clone(),
        };
        let line = line(now.as_micros(), db, &source, command, args);
        self.clients.read().expect("no holder panics").send(queues, &Payload::Raw(line.into()), 0);
    }
}

/// A call as it is shown.
fn line(unix_us: u128, db: usize, source: &str, command: &Command, args: Args) -> Vec<u8> {
    let mut line = Vec::with_capacity(64 + args.bytes());
    write!(line, "+{}.{:06} [{db} {source}]", unix_us / 1_000_000, unix_us % 1_000_000).expect(MEMORY);
    for (index, arg) in args.iter().enumerate() {
        line.push(b' ');
        write_quoted(&mut line, if is_secret(command, args, index) { REDACTED } else { arg });
    }
    line.extend_from_slice(b"\r\n");
    line
}

const MEMORY: &str = "writing to memory cannot fail";

/// Writes a text in quotes, so that it has no line breaks and all of its bytes can be seen.
fn write_quoted(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => write!(line, "\\x{byte:02x}").expect(MEMORY),
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command::table::Lookup, commands::ROWS};
    use holdfast_resp::OwnedArgs;

    #[test]
    fn lines_are_those_of_redis() {
        let shown = |args: &[&[u8]]| {
            let args: OwnedArgs = args.iter().copied().collect();
            let Lookup::Found(id) = ROWS.table.lookup(args.args()) else { panic!("no command") };
            let line = line(1_339_518_083_000_412, 3, "127.0.0.1:60866", ROWS.table.command(id), args.args());
            String::from_utf8(line).expect("quoted bytes are ASCII")
        };
        assert_eq!(shown(&[b"keys", b"*"]), "+1339518083.000412 [3 127.0.0.1:60866] \"keys\" \"*\"\r\n");
        assert!(
            shown(&[b"ECHO", b"a\"\\\r\n\t\x07\x08\x00\xff~ "])
                .ends_with(" \"ECHO\" \"a\\\"\\\\\\r\\n\\t\\a\\b\\x00\\xff~ \"\r\n")
        );
        assert!(shown(&[b"AUTH", b"me", b"secret"]).ends_with(" \"AUTH\" \"(redacted)\" \"(redacted)\"\r\n"));
    }
}
