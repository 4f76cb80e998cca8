//! What the real binary asks of the device, as the kernel sees it: a promise is made only after the call that keeps it.

use crate::harness::{Server, ok, wait_until};
use std::{collections::HashMap, fs};

const CALLS: [&str; 8] = ["pwritev2", "fdatasync", "fsync", "unlink", "recvfrom", "read", "sendto", "write"];

/// A call of the system.
#[derive(Debug)]
struct Call {
    /// Name, arguments and result.
    text: String,
    /// Lines of the trace: where it begins, and where it has returned.
    began: usize,
    ended: usize,
}

impl Call {
    /// Whether it is this call on a file whose path ends so, and has succeeded.
    fn is(&self, name: &str, path: &str) -> bool {
        let has_failed = self.text.contains(" = -1 ");
        self.text.starts_with(&format!("{name}(")) && self.text.contains(&format!("{path}>")) && !has_failed
    }

    fn is_durable_write(&self, path: &str) -> bool {
        self.is("pwritev2", path) && self.text.contains("RWF_DSYNC")
    }
}

/// The calls of a trace, in the order in which they have returned.
fn calls(trace: &str) -> Vec<Call> {
    let (mut calls, mut unfinished) = (Vec::new(), HashMap::new());
    for (at, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread.to_owned(), (at, begun.to_owned()));
        } else if let Some((_, end)) = rest.split_once("resumed>").filter(|_| rest.starts_with("<...")) {
            if let Some((began, begun)) = unfinished.remove(thread) {
                calls.push(Call { text: begun + end, began, ended: at });
            }
        } else {
            calls.push(Call { text: rest.to_owned(), began: at, ended: at });
        }
    }
    calls
}

/// The first call behind a line that `wanted` accepts.
fn after(calls: &[Call], line: usize, what: &str, wanted: impl Fn(&Call) -> bool) -> (usize, usize) {
    let found = calls.iter().find(|call| call.began > line && wanted(call));
    let found = found.unwrap_or_else(|| panic!("no {what} behind line {line} of {calls:#?}"));
    (found.began, found.ended)
}

#[test]
fn nothing_is_promised_before_the_device_was_told_to_keep_it() {
    let Some(mut server) = Server::start_traced(&CALLS, &["--appendfsync", "always"]) else {
        eprintln!("not tested: no process may trace another one here");
        return;
    };
    let mut client = server.client();
    for key in 0..3 {
        assert_eq!(client.call(&format!("SET marked:{key} value")), ok());
    }
    client.send(b"SHUTDOWN\r\n");
    server.wait();
    let trace = || fs::read_to_string(server.folder().join("calls")).unwrap_or_default();
    wait_until(|| "the trace is complete".into(), || trace().contains("+++ exited with 0 +++"));
    let calls = calls(&trace());

    for key in 0..3 {
        let (_, asked) = after(&calls, 0, "request", |call| call.text.contains(&format!("marked:{key}")));
        let (replied, _) = after(&calls, asked, "reply", |call| call.text.contains("+OK"));
        let within = |call: &&Call| call.began > asked && call.ended < replied;
        // Where the kernel does not know the flag, the file is synced behind the write.
        let kept = calls.iter().filter(within).any(|call| {
            let in_log = |name: &str| call.text.starts_with(name) && call.text.contains("/data/log/0");
            in_log("pwritev2(") && call.text.contains("RWF_DSYNC") || in_log("fdatasync(")
        });
        assert!(kept, "marked:{key} was acknowledged before it was durable: {calls:#?}");
    }

    // Each segment's bytes and name come before the header that relies on them.
    for segment in ["/data/log/00000000", "/data/log/00000001"] {
        let (zeroed, _) = after(&calls, 0, "write", |call| call.is("pwritev2", segment));
        let (_, synced) = after(&calls, zeroed, "sync", |call| call.is("fdatasync", segment));
        let (_, named) = after(&calls, synced, "sync of the folder", |call| call.is("fsync", "/data/log"));
        let header = calls.iter().find(|call| call.is_durable_write(segment));
        assert!(header.is_some_and(|header| header.began > named), "{segment}: {calls:#?}");
    }

    // The folder says what it is going to be, then everything is made, then the superblock says so.
    let (_, line) = after(&calls, 0, "file", |call| call.is_durable_write("/data/creating"));
    let (_, line) = after(&calls, line, "sync", |call| call.is("fdatasync", "/data/creating"));
    let (_, line) = after(&calls, line, "sync of the folder", |call| call.is("fsync", "/data"));
    let (_, line) = after(&calls, line, "heap", |call| call.is("pwritev2", "/data/heap"));
    let (_, line) = after(&calls, line, "sync", |call| call.is("fdatasync", "/data/heap"));
    let (_, line) = after(&calls, line, "segment", |call| call.is_durable_write("/data/log/00000000"));
    let (_, line) = after(&calls, line, "sync of the folder", |call| call.is("fsync", "/data"));
    let (begun, line) = after(&calls, line, "copy", |call| call.is_durable_write("/data/superblock"));
    assert!(!calls.iter().any(|call| call.began < begun && call.text.contains("/data/superblock>")));
    let (_, line) = after(&calls, line, "copy", |call| call.is_durable_write("/data/superblock"));
    let (_, line) = after(&calls, line, "sync", |call| call.is("fdatasync", "/data/superblock"));
    let (_, line) = after(&calls, line, "sync of the folder", |call| call.is("fsync", "/data"));
    let (_, line) = after(&calls, line, "removal", |call| call.text.starts_with("unlink("));
    after(&calls, line, "sync of the folder", |call| call.is("fsync", "/data"));

    // The last checkpoint.
    let (_, ended) = after(&calls, 0, "request", |call| call.text.contains("SHUTDOWN"));
    let (_, line) = after(&calls, ended, "pages", |call| call.is("pwritev2", "/data/heap"));
    let (_, line) = after(&calls, line, "sync", |call| call.is("fdatasync", "/data/heap"));
    let (begun, line) = after(&calls, line, "copy", |call| call.is_durable_write("/data/superblock"));
    let mut pages = calls.iter().filter(|call| call.is("pwritev2", "/data/heap"));
    assert!(pages.next_back().is_some_and(|last| last.ended < begun), "{calls:#?}");
    after(&calls, line, "copy", |call| call.is_durable_write("/data/superblock"));
}
