//! What a client waits with: connections, a timer, and events of its own, behind one descriptor.

use crate::{connection::Connection, error::Error};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    io,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

/// What `epoll` says of descriptors that are no connection's.
const OWN: u64 = u64::MAX;
/// Events that are taken at once.
const EVENTS: usize = 64;

/// A connection of which there is news.
pub struct Ready {
    pub server: usize,
    pub readable: bool,
    pub writable: bool,
}

pub struct Poller {
    /// What is to be waited for.
    epoll: OwnedFd,
    /// The same, and completions, of which those who wait for something else are not to be told all the time.
    outer: OwnedFd,
    timer: OwnedFd,
    /// For which time the timer is set.
    timer_at: Option<Instant>,
    /// Readable when who waits is to look at what there is.
    wake: OwnedFd,
    wake_told: bool,
    /// Readable when there are completions.
    completions: OwnedFd,
    completions_told: bool,
}

fn setup(e: io::Errno) -> Error {
    Error::Setup(format!("descriptors to wait with: {e}"))
}

impl Poller {
    pub fn new() -> Result<Poller, Error> {
        let create = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let poller = Poller {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                outer: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                timer: timerfd_create(
                    TimerfdClockId::Monotonic,
                    TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
                )?,
                timer_at: None,
                wake: eventfd(0, flags)?,
                wake_told: false,
                completions: eventfd(0, flags)?,
                completions_told: false,
            };
            let own = epoll::EventData::new_u64(OWN);
            epoll::add(&poller.epoll, &poller.timer, own, epoll::EventFlags::IN)?;
            epoll::add(&poller.epoll, &poller.wake, own, epoll::EventFlags::IN)?;
            epoll::add(&poller.outer, &poller.epoll, own, epoll::EventFlags::IN)?;
            epoll::add(&poller.outer, &poller.completions, own, epoll::EventFlags::IN)?;
            Ok(poller)
        };
        create().map_err(setup)
    }

    /// Readable when anything is to be done, or there are completions.
    pub fn all(&self) -> BorrowedFd<'_> {
        self.outer.as_fd()
    }

    /// Readable when there are completions.
    pub fn completions(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }

    /// A descriptor for [`wait`], which needs no lock.
    pub fn handle(&self) -> Result<OwnedFd, Error> {
        self.epoll.try_clone().map_err(|e| Error::Setup(format!("descriptors to wait with: {e}")))
    }

    /// Has the one who waits wake up.
    pub fn wake(&mut self) {
        if !self.wake_told {
            self.wake_told = true;
            signal(&self.wake);
        }
    }

    /// Has been woken.
    pub fn woken(&mut self) {
        if self.wake_told {
            self.wake_told = false;
            reset(&self.wake);
        }
    }

    /// Tells of completions, or that there are none.
    pub fn tell_completions(&mut self, any: bool) {
        if any != self.completions_told {
            self.completions_told = any;
            if any { signal(&self.completions) } else { reset(&self.completions) }
        }
    }

    /// Sets the timer for a time, or for none.
    pub fn set_timer(&mut self, at: Option<Instant>, now: Instant) {
        if at == self.timer_at {
            return;
        }
        self.timer_at = at;
        // A time of 0 would stop it.
        let wait =
            at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now).max(Duration::from_nanos(1)));
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(wait) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).expect("a timer of a valid time");
    }

    /// The time for which the timer was set is over.
    pub fn timer_is_over(&mut self, now: Instant) {
        if self.timer_at.is_some_and(|at| at <= now) {
            self.timer_at = None;
            reset(&self.timer);
        }
    }

    /// Watches a connection as it wants to be watched. A descriptor that was closed is not watched any more.
    pub fn watch(&self, server: usize, connection: &mut Connection) -> Result<(), String> {
        let Some(transport) = connection.transport() else { return Ok(()) };
        let wanted = Some((connection.links, connection.wants_write()));
        if connection.registered == wanted {
            return Ok(());
        }
        let mut flags = epoll::EventFlags::IN;
        if connection.wants_write() {
            flags |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(server as u64);
        let is_new = connection.registered.is_none_or(|(link, _)| link != connection.links);
        let done = if is_new {
            epoll::add(&self.epoll, transport.fd(), data, flags)
        } else {
            epoll::modify(&self.epoll, transport.fd(), data, flags)
        };
        done.map_err(|e| format!("it cannot be watched: {e}"))?;
        connection.registered = wanted;
        Ok(())
    }
}

/// Waits for news, until a time if there is one; hands each connection's to `ready`.
pub fn wait(epoll: impl AsFd, until: Option<Instant>, mut ready: impl FnMut(Ready)) {
    let wait = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
    let mut events = Vec::<epoll::Event>::with_capacity(EVENTS);
    // Interrupted: the caller looks at the time, and waits again.
    if epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), wait.as_ref()).is_err() {
        return;
    }
    for event in events {
        let (data, flags) = (event.data.u64(), event.flags);
        if data != OWN {
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready(Ready {
                server: data as usize,
                readable: failed || flags.contains(epoll::EventFlags::IN),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
            });
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: duration.subsec_nanos().into() }
}

/// The counter cannot overflow: it is reset before it is signalled again, or stays readable.
fn signal(eventfd: &OwnedFd) {
    let _ = io::write(eventfd, &1u64.to_ne_bytes());
}

/// There may be nothing to reset.
fn reset(fd: &OwnedFd) {
    let _ = io::read(fd, &mut [0; 8]);
}
