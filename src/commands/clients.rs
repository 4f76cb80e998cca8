//! CLIENT.

use super::{
    connection::{is_printable, set_name},
    tracking,
};
use crate::{
    clients::client::{Class, Client, flag},
    commands::prelude::*,
    server::mailbox::{Message, Wake},
    session::Replies,
};
use holdfast_resp::parse_int;
use std::{sync::Arc, time::Duration};

const BASIC: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);

const SUB: Command =
    Command { group: "connection", categories: Categories::CONNECTION, flags: BASIC, ..Command::NEW };

const ADMIN: Command = Command { flags: BASIC.and(Flags::ADMIN), ..SUB };

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "client",
    since: "2.4.0",
    group: "connection",
    summary: "A container for client connection commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(const { &[
    Command {
        name: "client|caching",
        syntax: "mode<YES|NO>",
        since: "6.0.0",
        summary: "Instructs the server whether to track the keys in the next request.",
        ..SUB
    }
    .by(Plain(tracking::caching)),
    Command {
        name: "client|getname",
        since: "2.6.9",
        summary: "Returns the name of the connection.",
        ..SUB
    }
    .by(Plain(getname)),
    Command {
        name: "client|getredir",
        since: "6.0.0",
        summary: "Returns the client ID to which the connection's tracking notifications are redirected.",
        ..SUB
    }
    .by(Plain(tracking::getredir)),
    Command {
        name: "client|help",
        since: "5.0.0",
        flags: Flags::LOADING.and(Flags::STALE),
        summary: "Returns helpful text about the subcommands.",
        ..SUB
    }
    .by(Plain(help)),
    Command {
        name: "client|id",
        since: "5.0.0",
        summary: "Returns the unique client ID of the connection.",
        ..SUB
    }
    .by(Plain(id)),
    Command {
        name: "client|info",
        since: "6.2.0",
        summary: "Returns information about the connection.",
        ..SUB
    }
    .by(Plain(info)),
    Command {
        name: "client|kill",
        syntax: "filter<old-format~ip:port|new-format<[ID=client-id:i@2.8.12]|[TYPE=client-type@2.8.12<NORMAL|MASTER@3.2.0|PRIMARY|SLAVE|REPLICA@5.0.0|PUBSUB>]|[USER=username]|[ADDR=addr~ip:port]|[LADDR=laddr~ip:port@6.2.0]|[SKIPME=skipme<YES|NO>]|[MAXAGE=maxage:i]>...>",
        summary: "Terminates open connections.",
        complexity: "O(N) where N is the number of client connections",
        since: "2.4.0",
        ..ADMIN
    }
    .by(Plain(kill)),
    Command {
        name: "client|list",
        syntax: "[TYPE=client-type@5.0.0<NORMAL|MASTER|REPLICA|PUBSUB>] [ID=client-id:i@6.2.0...]",
        since: "2.4.0",
        summary: "Lists open connections.",
        complexity: "O(N) where N is the number of client connections",
        ..ADMIN
    }
    .by(Plain(list)),
    Command {
        name: "client|no-evict",
        syntax: "enabled<ON|OFF>",
        since: "7.0.0",
        summary: "Sets the client eviction mode of the connection.",
        ..ADMIN
    }
    .by(Plain(no_evict)),
    Command {
        name: "client|no-touch",
        syntax: "enabled<ON|OFF>",
        since: "7.2.0",
        summary: "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
        ..SUB
    }
    .by(Plain(no_touch)),
    Command {
        name: "client|pause",
        syntax: "timeout:i [mode@6.2.0<WRITE|ALL>]",
        since: "3.0.0",
        summary: "Suspends commands processing.",
        ..ADMIN
    }
    .by(Plain(pause)),
    Command {
        name: "client|reply",
        syntax: "action<ON|OFF|SKIP>",
        since: "3.2.0",
        summary: "Instructs the server whether to reply to commands.",
        ..SUB
    }
    .by(Plain(reply)),
    Command {
        name: "client|setinfo",
        syntax: "attr<LIB-NAME=libname|LIB-VER=libver>",
        since: "7.2.0",
        summary: "Sets information specific to the client or connection.",
        ..SUB
    }
    .by(Plain(setinfo)),
    Command {
        name: "client|setname",
        syntax: "connection-name",
        since: "2.6.9",
        summary: "Sets the connection name.",
        ..SUB
    }
    .by(Plain(setname)),
    Command {
        name: "client|tracking",
        syntax: "status<ON|OFF> [REDIRECT=client-id:i] [PREFIX=prefix+...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
        since: "6.0.0",
        summary: "Controls server-assisted client-side caching for the connection.",
        complexity: "O(1). Some options may introduce additional complexity.",
        ..SUB
    }
    .by(Plain(tracking::tracking)),
    Command {
        name: "client|trackinginfo",
        since: "6.2.0",
        summary: "Returns information about server-assisted client-side caching for the connection.",
        ..SUB
    }
    .by(Plain(tracking::trackinginfo)),
    Command {
        name: "client|unblock",
        syntax: "client-id:i [unblock-type<TIMEOUT|ERROR>]",
        since: "5.0.0",
        summary: "Unblocks a client blocked by a blocking command from a different connection.",
        complexity: "O(log N) where N is the number of client connections",
        ..ADMIN
    }
    .by(Plain(unblock)),
    Command {
        name: "client|unpause",
        since: "6.2.0",
        summary: "Resumes processing commands from paused clients.",
        complexity: "O(N) where N is the number of paused clients",
        ..ADMIN
    }
    .by(Plain(unpause)),
] })];

const NO_SUCH_CLIENT: Stop = Stop::new("ERR No such client");
const BAD_ID: Stop = Stop::new("ERR Invalid client ID");
const BAD_KILL_ID: Stop = Stop::new("ERR client-id should be greater than 0");
const BAD_TIMEOUT: Stop = Stop::new("ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: Stop = Stop::new("ERR timeout is negative");
const LONG_TIMEOUT: Stop = Stop::new("ERR timeout is out of range");
const BAD_REASON: Stop = Stop::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "CACHING (YES|NO)",
        "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
        "GETREDIR",
        "    Return the client ID we are redirecting to when tracking is enabled.",
        "GETNAME",
        "    Return the name of the current connection.",
        "ID",
        "    Return the ID of the current connection.",
        "INFO",
        "    Return information about the current client connection.",
        "KILL <ip:port>",
        "    Kill connection made from <ip:port>.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Kill connections. Options are:",
        "    * ADDR (<ip:port>|<unixsocket>:0)",
        "      Kill connections made from the specified address",
        "    * LADDR (<ip:port>|<unixsocket>:0)",
        "      Kill connections made to specified local address",
        "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
        "      Kill connections by type.",
        "    * USER <username>",
        "      Kill connections authenticated by <username>.",
        "    * SKIPME (YES|NO)",
        "      Skip killing current connection (default: yes).",
        "LIST [options ...]",
        "    Return information about client connections. Options:",
        "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
        "      Return clients of specified type.",
        "    * ID <client-id> [<client-id> [...]]",
        "      Return clients of specified IDs only.",
        "UNPAUSE",
        "    Stop the current client pause, resuming traffic.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Suspend all, or just write, clients for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Control the replies sent to the current connection.",
        "SETNAME <name>",
        "    Assign the name <name> to the current connection.",
        "SETINFO <option> <value>",
        "    Set client meta attr. Options are:",
        "    * LIB-NAME: the client lib name.",
        "    * LIB-VER: the client lib version.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Control server assisted client side caching.",
        "TRACKINGINFO",
        "    Report tracking status for the current connection.",
        "UNBLOCK <clientid> [TIMEOUT|ERROR]",
        "    Unblock the specified blocked client.",
        "NO-EVICT (ON|OFF)",
        "    Protect current client connection from eviction.",
        "NO-TOUCH (ON|OFF)",
        "    Will not touch LRU/LFU stats when this mode is on.",
    ])
}

fn id(call: &mut Call) -> Answer {
    call.reply_int(call.session.client.id as i64)
}

fn getname(call: &mut Call) -> Answer {
    match call.session.client.name() {
        name if name.is_empty() => call.out.null(),
        name => call.out.bulk(name),
    }
    Ok(Done)
}

fn setname(call: &mut Call) -> Answer {
    set_name(call, call.args.at(2))?;
    call.reply_ok()
}

fn setinfo(call: &mut Call) -> Answer {
    let (option, value) = (call.args.at(2), call.args.at(3));
    let client = &call.session.client;
    let set = if call.is(2, "lib-name") {
        Client::set_lib_name
    } else if call.is(2, "lib-ver") {
        Client::set_lib_ver
    } else {
        return Err([b"ERR Unrecognized option '", option, b"'"].concat().into());
    };
    if !is_printable(value) {
        let name = option.to_ascii_lowercase();
        return Err([b"ERR ", &name[..], b" cannot contain spaces, newlines or special characters."]
            .concat()
            .into());
    }
    set(client, value);
    call.reply_ok()
}

fn info(call: &mut Call) -> Answer {
    call.session.publish();
    let line = call.session.client.describe(call.table()) + "\n";
    call.out.verbatim("txt", &line);
    Ok(Done)
}

/// The class of clients that a type names; `None` where there are none of the type.
fn class(name: &[u8]) -> Result<Option<Class>, Stop> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(Some(Class::Normal)),
        b"pubsub" => Ok(Some(Class::PubSub)),
        b"master" | b"replica" | b"slave" => Ok(None),
        _ => Err([b"ERR Unknown client type '", name, b"'"].concat().into()),
    }
}

fn list(call: &mut Call) -> Answer {
    call.session.publish();
    let args = call.args;
    let clients = if args.len() == 2 {
        call.server().clients.all()
    } else if args.len() == 4 && call.is(2, "type") {
        let class = class(args.at(3))?;
        let mut clients = call.server().clients.all();
        clients.retain(|client| Some(client.class()) == class);
        clients
    } else if args.len() > 3 && call.is(2, "id") {
        let ids: Option<Vec<i64>> = args.from(3).iter().map(parse_int).collect();
        let ids = ids.ok_or(BAD_ID)?;
        // Others than those above zero name nobody.
        let ids = ids.into_iter().filter_map(|id| u64::try_from(id).ok());
        ids.filter_map(|id| call.server().clients.get(id)).collect()
    } else {
        return Err(SYNTAX);
    };
    let mut text = String::new();
    for client in clients {
        text.push_str(&client.describe(call.table()));
        text.push('\n');
    }
    call.out.verbatim("txt", &text);
    Ok(Done)
}

/// Which clients CLIENT KILL is about.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    class: Option<Option<Class>>,
    max_age: Option<Duration>,
}

impl Filter<'_> {
    fn matches(&self, client: &Client) -> bool {
        self.class.is_none_or(|class| class == Some(client.class()))
            && self.id.is_none_or(|id| id == client.id)
            && self.addr.is_none_or(|addr| addr == client.addr.as_bytes())
            && self.laddr.is_none_or(|laddr| laddr == client.laddr.as_bytes())
            && self.user.is_none_or(|user| user == client.user())
            && self.max_age.is_none_or(|age| client.age() >= age)
    }
}

fn kill(call: &mut Call) -> Answer {
    let args = call.args;
    if args.len() == 3 {
        let filter = Filter { addr: Some(args.at(2)), ..Filter::default() };
        let (killed, own) = kill_matching(call, &filter, false);
        if killed == 0 {
            return Err(NO_SUCH_CLIENT);
        }
        call.out.ok();
        return Ok(if own { Close } else { Done });
    }
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let mut filter = Filter::default();
    let mut skip_me = true;
    for at in (2..args.len()).step_by(2) {
        let value = args.at(at + 1);
        match args.at(at).to_ascii_lowercase().as_slice() {
            b"id" => {
                let id = parse_int(value).filter(|id| *id > 0).ok_or(BAD_KILL_ID)?;
                filter.id = Some(id as u64);
            }
            b"type" => filter.class = Some(class(value)?),
            b"addr" => filter.addr = Some(value),
            b"laddr" => filter.laddr = Some(value),
            b"user" if call.server().acl.get(value).is_some() => filter.user = Some(value),
            b"user" => return Err([b"ERR No such user '", value, b"'"].concat().into()),
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => skip_me = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => skip_me = false,
            b"maxage" => {
                let age =
                    parse_int(value).ok_or(Stop::new("ERR maxage is not an integer or out of range"))?;
                if age <= 0 {
                    return Err(Stop::new("ERR maxage should be greater than 0"));
                }
                filter.max_age = Some(Duration::from_secs(age as u64));
            }
            _ => return Err(SYNTAX),
        }
    }
    let (killed, own) = kill_matching(call, &filter, skip_me);
    call.out.int(killed);
    Ok(if own { Close } else { Done })
}

/// Kills all clients that match; returns how many, and whether the caller is one of them. It still gets its reply.
fn kill_matching(call: &Call, filter: &Filter, skip_me: bool) -> (i64, bool) {
    let own_id = call.session.client.id;
    let mut own = false;
    let mut killed = 0;
    for client in call.server().clients.all() {
        if !filter.matches(&client) || (skip_me && client.id == own_id) {
            continue;
        }
        killed += 1;
        if client.id == own_id {
            own = true;
        } else {
            call.server().kill(&client);
        }
    }
    (killed, own)
}

fn on_or_off(call: &Call) -> Result<bool, Stop> {
    match call.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(SYNTAX),
    }
}

fn no_evict(call: &mut Call) -> Answer {
    call.session.client.set_flag(flag::NO_EVICT, on_or_off(call)?);
    call.reply_ok()
}

fn no_touch(call: &mut Call) -> Answer {
    call.session.client.set_flag(flag::NO_TOUCH, on_or_off(call)?);
    call.reply_ok()
}

fn reply(call: &mut Call) -> Answer {
    match call.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            call.session.replies = Replies::On;
            call.out.ok();
        }
        b"off" => call.session.replies = Replies::Off,
        b"skip" if call.session.replies != Replies::Off => call.session.replies = Replies::SkipNext,
        b"skip" => {}
        _ => return Err(SYNTAX),
    }
    Ok(Done)
}

fn pause(call: &mut Call) -> Answer {
    let writes_only = match call.args.len() {
        3 => false,
        4 if call.is(3, "write") => true,
        4 if call.is(3, "all") => false,
        4 => return Err(Stop::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(SYNTAX),
    };
    let timeout_ms = parse_int(call.args.at(2)).ok_or(BAD_TIMEOUT)?;
    if timeout_ms < 0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    if timeout_ms.checked_add_unsigned(call.turn.now_ms()).is_none() {
        return Err(LONG_TIMEOUT);
    }
    call.server().pause(Duration::from_millis(timeout_ms as u64), writes_only);
    call.reply_ok()
}

fn unpause(call: &mut Call) -> Answer {
    call.server().unpause();
    call.reply_ok()
}

fn unblock(call: &mut Call) -> Answer {
    let why = match call.args.len() {
        3 => Wake::Timeout,
        4 if call.is(3, "timeout") => Wake::Timeout,
        4 if call.is(3, "error") => Wake::Unblocked,
        _ => return Err(BAD_REASON),
    };
    let id = call.int(2)?;
    let client: Option<Arc<Client>> = u64::try_from(id).ok().and_then(|id| call.server().clients.get(id));
    match client.filter(|client| client.end_block(&call.server().workers[client.worker])) {
        Some(client) => {
            call.server().send(client.worker, Message::Unblock(client.id, why));
            call.out.int(1);
        }
        None => call.out.int(0),
    }
    Ok(Done)
}
