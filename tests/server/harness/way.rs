//! Ways to servers on which a test has nothing go on for a while.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// A way to a port of this machine.
pub struct Way {
    /// The port at which it begins.
    pub port: u16,
    passing: Arc<Passing>,
}

/// What may pass.
struct Passing {
    /// How many bytes, both ways.
    left: AtomicU64,
    /// Nothing of those who come from one of these addresses.
    parted: Mutex<BTreeSet<IpAddr>>,
}

impl Passing {
    fn holds(&self, near: IpAddr) -> bool {
        self.left.load(Relaxed) == 0 || self.parted.lock().expect("no test has failed").contains(&near)
    }
}

impl Way {
    /// One on which all passes, though nobody may listen there yet.
    pub fn new(to: u16) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let passing = Arc::new(Passing { left: AtomicU64::new(u64::MAX), parted: Mutex::default() });
        let way = Way { port, passing: passing.clone() };
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                // It may have ended already.
                let Ok(from) = near.peer_addr() else { continue };
                for (near, far) in [(&near, &far), (&far, &near)] {
                    let (near, far) =
                        (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
                    let passing = passing.clone();
                    thread::spawn(move || carry(near, far, from.ip(), &passing));
                }
            }
        });
        way
    }

    /// Has so many bytes pass, and then none; or all from now on, if that is `u64::MAX`.
    pub fn pass(&self, bytes: u64) {
        self.passing.left.store(bytes, Relaxed);
    }

    /// Has nothing pass of those who come from an address, or all again.
    pub fn part(&self, from: IpAddr, is_parted: bool) {
        let mut parted = self.passing.parted.lock().expect("no test has failed");
        if is_parted {
            parted.insert(from)
        } else {
            parted.remove(&from)
        };
    }

    /// Whether nothing may pass.
    pub fn is_held(&self) -> bool {
        self.passing.left.load(Relaxed) == 0
    }
}

/// Carries bytes one way of a connection that has come from an address.
fn carry(mut from: TcpStream, mut to: TcpStream, near: IpAddr, passing: &Passing) {
    let mut bytes = [0; 1 << 14];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        while passing.holds(near) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..len]).is_err() {
            return;
        }
        let take = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(len as u64));
        // All may pass.
        let _ = passing.left.fetch_update(Relaxed, Relaxed, take);
    }
    // Who has ended by now needs no telling.
    let _ = to.shutdown(Shutdown::Write);
}
