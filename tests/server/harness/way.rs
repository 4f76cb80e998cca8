//! Ways to servers on which a test has nothing go on for a while.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// A way to a port of this machine.
pub struct Way {
    /// The port at which it begins.
    pub port: u16,
    /// How many bytes may still pass, both ways.
    left: Arc<AtomicU64>,
}

impl Way {
    /// One on which all passes, though nobody may listen there yet.
    pub fn new(to: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let way = Way { port, left: Arc::new(AtomicU64::new(u64::MAX)) };
        let left = way.left.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let left = left.clone();
                    thread::spawn(move || carry(from, to, &left));
                }
            }
        });
        way
    }

    /// Has so many bytes pass, and then none; or all from now on, if that is `u64::MAX`.
    pub fn pass(&self, bytes: u64) {
        self.left.store(bytes, Relaxed);
    }

    /// Whether nothing may pass.
    pub fn is_held(&self) -> bool {
        self.left.load(Relaxed) == 0
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, left: &AtomicU64) {
    let mut bytes = [0; 1 << 14];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        while left.load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
        let take = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(len as u64));
        // All may pass.
        let _ = left.fetch_update(Relaxed, Relaxed, take);
    }
    // Who has ended by now needs no telling.
    let _ = to.shutdown(Shutdown::Write);
}
