//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE. What was acknowledged is in the log already; these are about checkpoints, which
//! make the next start short.

use crate::{commands::prelude::*, session::progress::Progress};
use std::time::Duration;

const ROW: Command = Command { group: "server", flags: Flags::ADMIN.and(Flags::NOSCRIPT), ..Command::NEW };

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command { name: "bgrewriteaof", summary: "Asynchronously rewrites the append-only file to disk.", ..ROW }
        .by(Plain(bgrewriteaof)),
    Command {
        name: "bgsave",
        syntax: "[SCHEDULE@3.2.2]",
        summary: "Asynchronously saves the database(s) to disk.",
        ..ROW
    }
    .by(Plain(bgsave)),
    Command {
        name: "lastsave",
        flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        categories: Categories::ADMIN.and(Categories::DANGEROUS),
        summary: "Returns the Unix timestamp of the last successful save to disk.",
        ..ROW
    }
    .by(Plain(lastsave)),
    Command {
        name: "save",
        flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI),
        summary: "Synchronously saves the database(s) to disk.",
        complexity: "O(N) where N is the total number of keys in all databases",
        ..ROW
    }
    .by(Plain(save)),
];

/// How often SAVE looks whether its checkpoint has ended.
const SAVE_TICK: Duration = Duration::from_millis(2);

fn save(call: &mut Call) -> Answer {
    if let Some(later) = checkpoint(call)? {
        return Ok(later);
    }
    call.reply_ok()
}

/// Takes a checkpoint; while it is not complete, an outcome that looks again.
pub fn checkpoint(call: &mut Call) -> Result<Option<Outcome>, Stop> {
    let store = &call.server().store;
    if let Some(why) = store.log().failed() {
        return Err(format!("ERR Writing to the log has failed: {why}").into());
    }
    let number = match call.session.progress.take() {
        Some(Progress::Save(number)) => number,
        _ => store.request_checkpoint(),
    };
    match store.checkpoint_result(number) {
        None => {
            call.session.progress = Some(Progress::Save(number));
            Ok(Some(Outcome::postpone(SAVE_TICK)))
        }
        Some(true) => Ok(None),
        Some(false) => Err("ERR The checkpoint failed; see the log".to_owned().into()),
    }
}

fn bgsave(call: &mut Call) -> Answer {
    match call.args.len() {
        1 => {}
        2 if call.is(1, "schedule") => {}
        _ => return Err(SYNTAX),
    }
    call.server().store.request_checkpoint();
    call.out.simple("Background saving started");
    Ok(Done)
}

fn bgrewriteaof(call: &mut Call) -> Answer {
    call.server().store.request_checkpoint();
    call.out.simple("Background append only file rewriting started");
    Ok(Done)
}

fn lastsave(call: &mut Call) -> Answer {
    let seconds = call.server().store.checkpoint_ms() / 1000;
    call.reply_int(seconds as i64)
}
