//! PING, ECHO, HELLO, AUTH, SELECT, QUIT, RESET.

use crate::{
    acl,
    command::error::{HELLO_NOAUTH, NO_PASSWORD_SET, NOPROTO, WRONGPASS},
    commands::prelude::*,
    config::Opt,
    util::version::REDIS_VERSION,
};
use holdfast_resp::{Proto, Writer, parse_int};

/// Works before authentication and while a script runs.
const ALWAYS: Flags = ROW.flags.and(Flags::NOSCRIPT).and(Flags::NO_AUTH).and(Flags::ALLOW_BUSY);

const ROW: Command = Command {
    group: "connection",
    categories: Categories::CONNECTION,
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "auth",
        syntax: "[username@6.0.0] password",
        flags: ALWAYS,
        summary: "Authenticates the connection.",
        complexity: "O(N) where N is the number of passwords defined for the user",
        ..ROW
    }
    .by(Plain(auth)),
    Command { name: "echo", syntax: "message", summary: "Returns the given string.", ..ROW }.by(Plain(echo)),
    Command {
        name: "hello",
        syntax: "[arguments(protover:i [AUTH=auth(username password)] [SETNAME=clientname])]",
        flags: ALWAYS,
        since: "6.0.0",
        summary: "Handshakes with the server.",
        ..ROW
    }
    .by(Plain(hello)),
    Command {
        name: "ping",
        syntax: "[message]",
        flags: Flags::FAST,
        summary: "Returns the server's liveliness response.",
        ..ROW
    }
    .by(Plain(ping)),
    Command {
        name: "quit",
        arity: -1,
        flags: ALWAYS.and(Flags::IMMEDIATE),
        summary: "Closes the connection.",
        ..ROW
    }
    .by(Plain(quit)),
    Command {
        name: "reset",
        flags: ALWAYS.and(Flags::IMMEDIATE),
        since: "6.2.0",
        summary: "Resets the connection.",
        ..ROW
    }
    .by(Plain(reset)),
    Command { name: "select", syntax: "index:i", summary: "Changes the selected database.", ..ROW }
        .by(Plain(select)),
];

const PROTO_NOT_INTEGER: Stop = Stop::new("ERR Protocol version is not an integer or out of range");
const BAD_NAME: Stop = Stop::new("ERR Client names cannot contain spaces, newlines or special characters.");

fn ping(call: &mut Call) -> Answer {
    if call.args.len() <= 2 && call.session.client.is_subscribed() && call.out.proto() == Proto::Resp2 {
        // Like a message, since the client expects those.
        call.out.array(2);
        call.out.bulk("pong");
        call.out.bulk(call.args.get(1).unwrap_or_default());
        return Ok(Done);
    }
    match call.args.len() {
        1 => call.out.simple("PONG"),
        2 => call.out.bulk(call.args.at(1)),
        _ => return Err(crate::exec::call::wrong_arity(call.command)),
    }
    Ok(Done)
}

fn echo(call: &mut Call) -> Answer {
    call.reply_bulk(call.args.at(1))
}

fn select(call: &mut Call) -> Answer {
    let number = call.database_number(1)?;
    if number != 0 && call.server().cluster.is_on() {
        return Err(Stop::new("ERR SELECT is not allowed in cluster mode"));
    }
    call.session.db = number.into();
    call.reply_ok()
}

fn quit(call: &mut Call) -> Answer {
    call.out.ok();
    Ok(Close)
}

fn reset(call: &mut Call) -> Answer {
    let server = call.server();
    call.session.reset(server);
    call.set_proto(Proto::Resp2);
    call.out.simple("RESET");
    Ok(Done)
}

fn auth(call: &mut Call) -> Answer {
    let args = call.args;
    let (user, password) = match args.len() {
        2 if call.server().acl.default_user().rules().needs_no_password() => return Err(NO_PASSWORD_SET),
        2 => (acl::DEFAULT, args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(crate::command::error::SYNTAX),
    };
    authenticate(call, user, password)?;
    call.reply_ok()
}

fn authenticate(call: &mut Call, user: &[u8], password: &[u8]) -> Result<(), Stop> {
    let server = call.server();
    match server.acl.authenticate(user, password) {
        Some(user) => {
            call.session.log_in(user, true);
            Ok(())
        }
        None => {
            let context = if call.session.in_exec { acl::Context::Multi } else { acl::Context::TopLevel };
            let max_len = server.config.number(Opt::AclLogMaxLen) as usize;
            call.session.publish();
            let client = || call.session.client.describe(server.table);
            server.acl.log.add("auth", context, call.args.at(0), user, client, max_len);
            Err(WRONGPASS)
        }
    }
}

fn hello(call: &mut Call) -> Answer {
    let args = call.args;
    let proto = match args.get(1) {
        None => None,
        Some(text) => match parse_int(text).ok_or(PROTO_NOT_INTEGER)? {
            2 => Some(Proto::Resp2),
            3 => Some(Proto::Resp3),
            _ => return Err(NOPROTO),
        },
    };
    let mut credentials = None;
    let mut name = None;
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if call.is(at, "auth") && more >= 2 {
            credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if call.is(at, "setname") && more >= 1 {
            name = Some(args.at(at + 1));
            at += 2;
        } else {
            return Err([b"ERR Syntax error in HELLO option '", args.at(at), b"'"].concat().into());
        }
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.session.authenticated && call.server().acl.requires_auth() {
        return Err(HELLO_NOAUTH);
    }
    if let Some(name) = name {
        set_name(call, name)?;
    }
    if let Some(proto) = proto {
        call.set_proto(proto);
    }
    let id = call.session.client.id as i64;
    let mode = call.server().cluster.mode();
    let role = if call.server().replication.is_replica() { "replica" } else { "master" };
    hello_reply(&mut call.out, id, mode, role);
    Ok(Done)
}

/// The reply to HELLO.
pub fn hello_reply(out: &mut Writer, id: i64, mode: &str, role: &str) {
    let proto = if out.proto() == Proto::Resp3 { 3 } else { 2 };
    out.map(7);
    out.key("server").bulk("redis");
    out.key("version").bulk(REDIS_VERSION);
    out.key("proto").int(proto);
    out.key("id").int(id);
    out.key("mode").bulk(mode);
    out.key("role").bulk(role);
    out.key("modules").array(0);
}

/// Gives the connection a name; an empty one takes it away.
pub fn set_name(call: &mut Call, name: &[u8]) -> Result<(), Stop> {
    if !is_printable(name) {
        return Err(BAD_NAME);
    }
    call.session.client.set_name(name);
    Ok(())
}

/// Whether a text can stand in CLIENT LIST without breaking its format.
pub fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
