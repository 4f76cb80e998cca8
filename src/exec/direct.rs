//! Commands on one string that need no transaction, since nobody is to be told of what they do.

use crate::{
    clients::client::flag,
    command::table::CommandId,
    exec::{
        answer::Outcome,
        handler::{Direct, Row},
        turn::Turn,
    },
    push::notify::Class,
    session::Session,
};
use holdfast_resp::{Args, Writer, parse_int};
use holdfast_store::{Expected, Got, Lsn};
use std::sync::atomic::Ordering::Relaxed;

impl Turn<'_> {
    /// Does a call without a transaction, if that is possible: one that reads may have to fetch first what it reads, and nobody is
    /// to be told of it. `None`: it takes a transaction.
    #[inline]
    pub fn do_directly(
        &self,
        session: &mut Session,
        id: CommandId,
        row: &Row,
        args: Args,
        expected: Expected,
        out: &mut Writer,
    ) -> Option<Outcome> {
        let direct = row.direct?;
        let server = &self.worker.server;
        let is_seen = session.tracking.is_some() || server.push.monitors.is_used();
        if is_seen || session.client.has_flag(flag::NO_TOUCH) {
            return None;
        }
        let (logical, key, now_ms) = (session.db as u8, args.at(1), self.now_ms());
        let done = match direct {
            Direct::Reads(reply) => loop {
                let (fetched, show) = (session.fetched.last(), |value: &[u8]| reply(out, value));
                match server.store.get_directly(logical, key, expected, now_ms, fetched, show)? {
                    Got::Value((), lsn) => break Some(lsn),
                    Got::Cold(cold) => match session.ahead.take_one(cold.id()) {
                        Some(ahead) => session.fetched.push(ahead),
                        None => {
                            session.client.set_command(id);
                            self.end_run(session);
                            return Some(Outcome::Fetch(vec![cold]));
                        }
                    },
                }
            },
            _ if !session.fetched.is_empty() => None,
            // Events are published by transactions.
            _ if server.push.notices.has(Class::STRING) => None,
            Direct::Sets(value) => value(args)
                .and_then(|value| server.store.set_directly(logical, key, value, expected, now_ms))
                .inspect(|_| out.ok()),
            Direct::Adds(by) => self.add_directly(logical, args, by(args), expected, out),
        };
        let lsn = done?;
        session.fetched.clear();
        self.depend_on(lsn);
        if !matches!(direct, Direct::Reads(_)) && lsn > server.progress.durable() {
            self.worker.appended.store(true, Relaxed);
        }
        session.client.set_command(id);
        self.finish(session, id, args, false);
        Some(Outcome::Done)
    }

    /// Adds to the number at a key without a transaction.
    #[inline]
    fn add_directly(
        &self,
        logical: u8,
        args: Args,
        by: Option<i64>,
        expected: Expected,
        out: &mut Writer,
    ) -> Option<Lsn> {
        let (key, by, mut sum, mut digits) = (args.at(1), by?, 0, itoa::Buffer::new());
        let (result, digits) = (&mut sum, &mut digits);
        let store = &self.worker.server.store;
        let lsn =
            store.change_directly(logical, key, expected, self.now_ms(), args.from(1).bytes(), |old| {
                *result = parse_int(old)?.checked_add(by)?;
                Some(digits.format(*result))
            })?;
        out.int(sum);
        Some(lsn)
    }
}
