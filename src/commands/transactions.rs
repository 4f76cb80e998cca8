//! MULTI, EXEC, DISCARD.

use crate::{
    answer::{Answer, ErrorReply, Outcome, Outcome::*, Wake},
    call::Call,
    command::{Categories, Command, Flags},
    session::Multi,
};

const IMMEDIATE: Flags =
    Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY).and(Flags::IMMEDIATE);

const ROW: Command = Command {
    arity: 1,
    group: "transactions",
    categories: Categories::TRANSACTION,
    flags: IMMEDIATE.and(Flags::FAST),
    since: "1.2.0",
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "discard",
        since: "2.0.0",
        summary: "Discards a transaction.",
        complexity: "O(N), when N is the number of queued commands",
        handler: discard,
        ..ROW
    },
    Command {
        name: "exec",
        flags: IMMEDIATE.and(Flags::SKIP_SLOWLOG),
        summary: "Executes all commands in a transaction.",
        complexity: "O(N), when N is the number of queued commands",
        handler: exec,
        ..ROW
    },
    Command { name: "multi", summary: "Starts a transaction.", handler: multi, ..ROW },
];

const NESTED: ErrorReply = ErrorReply::new("ERR MULTI calls can not be nested");
const EXEC_WITHOUT_MULTI: ErrorReply = ErrorReply::new("ERR EXEC without MULTI");
const DISCARD_WITHOUT_MULTI: ErrorReply = ErrorReply::new("ERR DISCARD without MULTI");
const ABORTED: ErrorReply = ErrorReply::new("EXECABORT Transaction discarded because of previous errors.");

fn multi(call: &mut Call) -> Answer {
    if call.session.multi.is_some() {
        return Err(NESTED);
    }
    call.session.multi = Some(Multi::default());
    call.out.ok();
    Ok(Done)
}

fn discard(call: &mut Call) -> Answer {
    call.session.multi.take().ok_or(DISCARD_WITHOUT_MULTI)?;
    call.out.ok();
    Ok(Done)
}

fn exec(call: &mut Call) -> Answer {
    let multi = call.session.multi.take().ok_or(EXEC_WITHOUT_MULTI)?;
    if multi.aborted {
        return Err(ABORTED);
    }
    call.out.array(multi.queue.len());
    call.session.in_exec = true;
    let mut result = Done;
    for (id, args) in &multi.queue {
        match call.turn.run(call.session, *id, args.args(), &mut call.out.reborrow(), Wake::First) {
            Done => {}
            Close => result = Close,
            Outcome::Wait(_) => unreachable!("commands do not wait within EXEC"),
        }
    }
    call.session.in_exec = false;
    Ok(result)
}
