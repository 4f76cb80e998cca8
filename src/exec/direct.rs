//! Commands on one string that need no transaction: what they need is in memory, and nobody is to be told of it.

use crate::{
    clients::client::flag,
    command::table::CommandId,
    exec::{
        handler::{Direct, Row},
        turn::Turn,
    },
    push::notify::Class,
    session::Session,
};
use holdfast_resp::{Args, Writer, parse_int};
use holdfast_store::{Expected, Lsn};
use std::sync::atomic::Ordering::Relaxed;

impl Turn<'_> {
    /// Does a call without a transaction, if that is possible: what it needs is in memory, and nobody is to be told of it; whether
    /// it did.
    #[inline]
    pub fn do_directly(
        &self,
        session: &mut Session,
        id: CommandId,
        row: &Row,
        args: Args,
        expected: Expected,
        out: &mut Writer,
    ) -> bool {
        let Some(direct) = row.direct else { return false };
        let server = &self.worker.server;
        let is_seen = session.tracking.is_some() || server.push.monitors.is_used();
        if is_seen || !session.fetched.is_empty() || session.client.has_flag(flag::NO_TOUCH) {
            return false;
        }
        let (logical, key, now_ms) = (session.db as u8, args.at(1), self.now_ms());
        let done = match direct {
            Direct::Reads(reply) => {
                let show = |value: &[u8]| reply(out, value);
                server.store.get_cached(logical, key, expected, now_ms, show).map(|((), lsn)| lsn)
            }
            // Events are published by transactions.
            _ if server.push.notices.has(Class::STRING) => None,
            Direct::Sets(value) => value(args)
                .and_then(|value| server.store.set_directly(logical, key, value, expected, now_ms))
                .inspect(|_| out.ok()),
            Direct::Adds(by) => self.add_directly(logical, args, by(args), expected, out),
        };
        let Some(lsn) = done else { return false };
        self.depend_on(lsn);
        if !matches!(direct, Direct::Reads(_)) && lsn > server.progress.durable() {
            self.worker.appended.store(true, Relaxed);
        }
        session.client.set_command(id);
        self.finish(session, id, args, false);
        true
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
