//! What a handler is given.

use crate::{
    command::{
        Command,
        error::{NO_DATABASE, NOT_DOUBLE, NOT_INTEGER, Stop},
        table::Table,
    },
    config::Opt,
    exec::{
        answer::{Answer, Outcome},
        handler::Rows,
        turn::{Notification, Turn},
    },
    push::notify::{Class, Event},
    server::{Server, mailbox::Wake},
    session::{Session, observe::Waiting},
};
use holdfast_resp::{Args, Proto, Writer, parse_double, parse_int};
use holdfast_store::{Turn as ObserverTurn, Txn};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// One execution of a command.
pub struct Call<'a> {
    /// Its row.
    pub command: &'static Command,
    /// Its arguments, the name first.
    pub args: Args<'a>,
    /// Where its reply goes.
    pub out: Writer<'a>,
    /// The connection's state.
    pub session: &'a mut Session,
    /// The loop turn that it is part of.
    pub turn: &'a Turn<'a>,
    /// Why it runs, if it has waited.
    pub wake: Wake,
}

impl<'a> Call<'a> {
    /// The server.
    pub fn server(&self) -> &'a Arc<Server> {
        &self.turn.worker.server
    }

    /// What the commands are.
    pub fn table(&self) -> &'static Table {
        self.server().table
    }

    /// What executes them.
    pub fn rows(&self) -> &'static Rows {
        self.turn.worker.rows
    }

    /// The database selected, as the store knows it. To be asked within a transaction, since SWAPDB may change it.
    pub fn db(&self) -> u8 {
        self.server().store.database(self.session.db as u8)
    }

    /// Lets the command wait until one of `keys` is written and it has its turn, for at most `timeout`, and run again;
    /// within EXEC it may not wait ([`Session::in_exec`]). Every run that finds nothing returns this.
    pub fn wait_for<'k>(
        &mut self,
        txn: &mut Txn,
        keys: impl Iterator<Item = &'k [u8]>,
        turn: ObserverTurn,
        timeout: Option<Duration>,
    ) -> Answer {
        debug_assert!(!self.session.in_exec);
        if let Some(waiting) = &self.session.waiting {
            waiting.go_on(txn);
            return Ok(Outcome::Wait(waiting.until));
        }
        // A deadline that is too far to name is none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.session.waiting = Some(Waiting::begin(txn, self.session.db as u8, keys, turn, until));
        Ok(Outcome::Wait(until))
    }

    /// An argument as an integer.
    pub fn int(&self, index: usize) -> Result<i64, Stop> {
        parse_int(self.args.at(index)).ok_or(NOT_INTEGER)
    }

    /// An argument as the number of a database.
    pub fn database_number(&self, index: usize) -> Result<u8, Stop> {
        const OUT_OF_RANGE: Stop =
            Stop::new("ERR value is out of range, value must between -2147483648 and 2147483647");
        let number = i32::try_from(self.int(index)?).map_err(|_| OUT_OF_RANGE)?;
        let databases = self.server().config.number(Opt::Databases);
        if (0..databases).contains(&number.into()) { Ok(number as u8) } else { Err(NO_DATABASE) }
    }

    /// An argument as an integer of at least `min`; else `error`.
    pub fn int_from(&self, index: usize, min: i64, error: Stop) -> Result<i64, Stop> {
        parse_int(self.args.at(index)).filter(|&value| value >= min).ok_or(error)
    }

    /// An argument as a floating-point number.
    pub fn double(&self, index: usize) -> Result<f64, Stop> {
        parse_double(self.args.at(index)).ok_or(NOT_DOUBLE)
    }

    /// Whether argument `index` is `word`, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Changes the protocol of this reply and all later ones.
    pub fn set_proto(&mut self, proto: Proto) {
        self.session.proto = proto;
        // Messages follow it too.
        self.session.publish();
        self.out.set_proto(proto);
    }

    /// The error of a container that lacks the subcommand asked for.
    pub fn unknown_subcommand(&self) -> Stop {
        unknown_subcommand(self.command, self.args)
    }

    /// What it chooses at random by: the same draws by which [`Use::Random`](holdfast_store::Use::Random) has looked for what it
    /// will choose. To be asked for once, and when nothing has the call run again any more.
    pub fn draws(&mut self) -> impl FnMut() -> u64 + use<> {
        holdfast_store::draws(self.session.draws.u64(..))
    }

    /// Calls `each` to write a part of the reply, `times` times. How often is cheap for a client to say, so that the reply
    /// is limited.
    pub fn repeat(&mut self, times: u64, mut each: impl FnMut(&mut Writer)) -> Result<(), Stop> {
        /// Less than a second's work, which holds up who wants the same keys.
        const BYTES_MAX: usize = 256 << 20;
        const TOO_LONG: Stop = Stop::new("ERR the reply would be too long");
        /// Bytes of an empty string.
        const LEAST: usize = 6;
        if times > (BYTES_MAX / LEAST) as u64 {
            return Err(TOO_LONG);
        }
        let start = self.out.written().len();
        let limit = &self.turn.worker.server.output_limits[self.session.client.class() as usize];
        for _ in 0..times {
            each(&mut self.out);
            let end = self.out.written().len();
            if end - start > BYTES_MAX {
                return Err(TOO_LONG);
            }
            if !self.session.in_script && limit.exceeds_hard(end) {
                // The client is disconnected for it, whatever would follow.
                break;
            }
        }
        Ok(())
    }

    /// Replies OK.
    pub fn reply_ok(&mut self) -> Answer {
        self.out.ok();
        Ok(Outcome::Done)
    }

    /// Replies with a number.
    pub fn reply_int(&mut self, value: i64) -> Answer {
        self.out.int(value);
        Ok(Outcome::Done)
    }

    /// Replies with a string.
    pub fn reply_bulk(&mut self, bytes: impl AsRef<[u8]>) -> Answer {
        self.out.bulk(bytes);
        Ok(Outcome::Done)
    }

    /// Replies with the lines of a HELP subcommand between Redis's usual first and last ones.
    pub fn help(&mut self, lines: &[&str]) -> Answer {
        let container = self.args.at(0).to_ascii_uppercase();
        let title = [&container[..], b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"].concat();
        self.out.array(lines.len() + 3);
        self.out.simple(title);
        for line in lines {
            self.out.simple(line);
        }
        self.out.simple("HELP");
        self.out.simple("    Print this help.");
        Ok(Outcome::Done)
    }
}

impl Call<'_> {
    /// Says what was done to a key of the selected database, to those who listen for it.
    #[inline]
    pub fn notify(&self, class: Class, event: &'static str, key: &[u8]) {
        self.notify_in(self.session.db as u8, class, event, key);
    }

    /// The same where the key may have been removed with its last element: then that is told too.
    #[inline]
    pub fn notify_taken(&self, txn: &mut Txn, class: Class, event: &'static str, key: &[u8]) {
        self.notify(class, event, key);
        self.notify_if_gone(txn, key);
    }

    /// Says that a key is gone, if it is.
    #[inline]
    pub fn notify_if_gone(&self, txn: &mut Txn, key: &[u8]) {
        if self.notifies(Class::GENERIC) && !txn.exists(self.db(), key) {
            self.notify(Class::GENERIC, "del", key);
        }
    }

    /// Says that a result was stored at a key, or, if there was none, that the key is gone that was there before.
    pub fn notify_stored(
        &self,
        class: Class,
        event: &'static str,
        key: &[u8],
        is_stored: bool,
        was_there: bool,
    ) {
        if is_stored {
            self.notify(class, event, key);
        } else if was_there {
            self.notify(Class::GENERIC, "del", key);
        }
    }

    /// Whether events of a class are published, so that it is worth finding out what has happened.
    #[inline]
    pub fn notifies(&self, class: Class) -> bool {
        self.server().push.notices.has(class)
    }

    /// The same of the database with a number.
    #[inline]
    pub fn notify_in(&self, db: u8, class: Class, event: &'static str, key: &[u8]) {
        if self.notifies(class) {
            self.turn.announce(Notification::Event(Event { db, class, name: event, key: key.to_vec() }));
        }
    }
}

/// `-ERR unknown subcommand …`
pub fn unknown_subcommand(container: &Command, args: Args) -> Stop {
    let name = args.get(1).unwrap_or_default();
    let shown = &name[..name.len().min(128)];
    let upper = container.name.to_ascii_uppercase();
    [b"ERR unknown subcommand '", shown, b"'. Try ", upper.as_bytes(), b" HELP."].concat().into()
}

/// `-ERR unknown subcommand or wrong number of arguments …`
pub fn wrong_subcommand(args: Args) -> Stop {
    let name = args.get(1).unwrap_or_default();
    let shown = &name[..name.len().min(128)];
    let upper = args.at(0).to_ascii_uppercase();
    [b"ERR unknown subcommand or wrong number of arguments for '", shown, b"'. Try ", &upper, b" HELP."]
        .concat()
        .into()
}

/// `-ERR wrong number of arguments …`
pub fn wrong_arity(command: &Command) -> Stop {
    format!("ERR wrong number of arguments for '{}' command", command.name).into()
}
