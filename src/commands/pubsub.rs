//! SUBSCRIBE, PUBLISH and their kin.

use crate::{
    clients::client::Kind,
    command::Channels,
    commands::prelude::*,
    exec::{call::wrong_subcommand, turn::Notification},
};

const ROW: Command = Command {
    group: "pubsub",
    since: "2.0.0",
    flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};
const SUBSCRIBING: Command = Command { flags: ROW.flags.and(Flags::NOSCRIPT), ..ROW };
const PUBLISHING: Command = Command { flags: ROW.flags.and(Flags::FAST).and(Flags::MAY_REPLICATE), ..ROW };
const ASKING: Command =
    Command { since: "2.8.0", complexity: "O(N) where N is the number of active channels.", ..ROW };
const SHARD: &[KeySpec] = &[KeySpec::range(KeyAccess::NOT_KEY, 1, -1, 1)];

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "psubscribe",
        syntax: "pattern:p...",
        channels: Channels::Patterns,
        summary: "Listens for messages published to channels that match one or more patterns.",
        complexity: "O(N) where N is the number of patterns to subscribe to.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| subscribe(call, Kind::Pattern))),
    Command {
        name: "publish",
        syntax: "channel message",
        channels: Channels::First,
        summary: "Posts a message to a channel.",
        complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
        ..PUBLISHING
    }
    .by(Plain(|call| publish(call, false))),
    Command {
        name: "pubsub",
        group: "pubsub",
        since: "2.8.0",
        summary: "A container for Pub/Sub commands.",
        complexity: "O(1), depends on subcommand",
        ..Command::NEW
    }
    .container(const { &[
        Command {
            name: "pubsub|channels",
            syntax: "[pattern:p]",
            summary: "Returns the active channels.",
            ..ASKING
        }
        .by(Plain(|call| channels(call, Kind::Channel))),
        Command {
            name: "pubsub|help",
            since: "6.2.0",
            flags: Flags::LOADING.and(Flags::STALE),
            summary: "Returns helpful text about the different subcommands.",
            complexity: "O(1)",
            ..ASKING
        }
        .by(Plain(help)),
        Command {
            name: "pubsub|numpat",
            summary: "Returns a count of unique pattern subscriptions.",
            complexity: "O(1)",
            ..ASKING
        }
        .by(Plain(numpat)),
        Command {
            name: "pubsub|numsub",
            syntax: "[channel...]",
            summary: "Returns a count of subscribers to channels.",
            complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
            ..ASKING
        }
        .by(Plain(|call| numsub(call, Kind::Channel))),
        Command {
            name: "pubsub|shardchannels",
            syntax: "[pattern:p]",
            since: "7.0.0",
            summary: "Returns the active shard channels.",
            ..ASKING
        }
        .by(Plain(|call| channels(call, Kind::Shard))),
        Command {
            name: "pubsub|shardnumsub",
            syntax: "[shardchannel...]",
            since: "7.0.0",
            summary: "Returns the count of subscribers of shard channels.",
            complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
            ..ASKING
        }
        .by(Plain(|call| numsub(call, Kind::Shard))),
    ] }),
    Command {
        name: "punsubscribe",
        syntax: "[pattern:p...]",
        summary: "Stops listening to messages published to channels that match one or more patterns.",
        complexity: "O(N) where N is the number of patterns to unsubscribe.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| unsubscribe(call, Kind::Pattern))),
    Command {
        name: "spublish",
        syntax: "shardchannel message",
        channels: Channels::First,
        since: "7.0.0",
        keys: &[KeySpec::one(KeyAccess::NOT_KEY, 1)],
        summary: "Post a message to a shard channel.",
        complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        ..PUBLISHING
    }
    .by(Plain(|call| publish(call, true))),
    Command {
        name: "ssubscribe",
        syntax: "shardchannel...",
        channels: Channels::All,
        since: "7.0.0",
        keys: SHARD,
        summary: "Listens for messages published to shard channels.",
        complexity: "O(N) where N is the number of shard channels to subscribe to.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| subscribe(call, Kind::Shard))),
    Command {
        name: "subscribe",
        syntax: "channel...",
        channels: Channels::All,
        summary: "Listens for messages published to channels.",
        complexity: "O(N) where N is the number of channels to subscribe to.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| subscribe(call, Kind::Channel))),
    Command {
        name: "sunsubscribe",
        syntax: "[shardchannel...]",
        since: "7.0.0",
        keys: SHARD,
        summary: "Stops listening to messages posted to shard channels.",
        complexity: "O(N) where N is the number of shard channels to unsubscribe.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| unsubscribe(call, Kind::Shard))),
    Command {
        name: "unsubscribe",
        syntax: "[channel...]",
        summary: "Stops listening to messages posted to channels.",
        complexity: "O(N) where N is the number of channels to unsubscribe.",
        ..SUBSCRIBING
    }
    .by(Plain(|call| unsubscribe(call, Kind::Channel))),
];

/// What a client is told that begins or ends a subscription.
fn confirm(call: &mut Call, word: &str, kind: Kind, name: Option<&[u8]>) {
    let subscriptions = &call.session.subscriptions;
    let count = match kind {
        Kind::Shard => subscriptions.len(kind),
        Kind::Channel | Kind::Pattern => subscriptions.len(Kind::Channel) + subscriptions.len(Kind::Pattern),
    };
    call.session.replied_by_push = true;
    call.out.push(3);
    call.out.bulk(word);
    call.out.bulk_or_null(name);
    call.out.int(count as i64);
}

fn subscribe(call: &mut Call, kind: Kind) -> Answer {
    let word = call.command.name;
    if kind == Kind::Shard && call.session.in_exec {
        return Err(Stop::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    for name in call.args.from(1).iter() {
        let session = &mut *call.session;
        session.subscriptions.begin(&call.turn.worker.server.push.pubsub, &session.client, kind, name);
        confirm(call, word, kind, Some(name));
    }
    Ok(Done)
}

fn unsubscribe(call: &mut Call, kind: Kind) -> Answer {
    let word = call.command.name;
    let names = match call.args.len() {
        1 => call.session.subscriptions.names(kind),
        _ => call.args.from(1).iter().map(Into::into).collect(),
    };
    if names.is_empty() {
        confirm(call, word, kind, None);
    }
    for name in names {
        let (session, turn) = (&mut *call.session, call.turn);
        session.subscriptions.end(&turn.worker.server.push.pubsub, &session.client, kind, &name);
        if !session.in_exec {
            // What was sent before this comes before this.
            call.out.raw(|out| turn.inbox.take_pushed(session.client.id, out));
        }
        confirm(call, word, kind, Some(&name));
    }
    Ok(Done)
}

/// A message never overtakes what its sender has written before: it waits for that as replies do.
fn publish(call: &mut Call, to_shard: bool) -> Answer {
    let (channel, message) = (call.args.at(1), call.args.at(2));
    let push = &call.server().push;
    let receivers = if call.session.in_exec {
        call.turn.announce(Notification::Message {
            channel: channel.to_vec(),
            message: message.to_vec(),
            to_shard,
        });
        push.pubsub.receivers(channel, to_shard)
    } else {
        call.server().publish(channel, message, to_shard, call.session.wait_lsn)
    };
    call.reply_int(receivers as i64)
}

fn channels(call: &mut Call, kind: Kind) -> Answer {
    if call.args.len() > 3 {
        return Err(wrong_subcommand(call.args));
    }
    let names = call.server().push.pubsub.channels(kind, call.args.get(2));
    call.out.array(names.len());
    names.iter().for_each(|name| call.out.bulk(name));
    Ok(Done)
}

fn numpat(call: &mut Call) -> Answer {
    call.reply_int(call.server().push.pubsub.pattern_count() as i64)
}

fn numsub(call: &mut Call, kind: Kind) -> Answer {
    let names = call.args.from(2);
    call.out.array(2 * names.len());
    for name in names.iter() {
        call.out.bulk(name);
        call.out.int(call.server().push.pubsub.subscribers(kind, name) as i64);
    }
    Ok(Done)
}

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "CHANNELS [<pattern>]",
        "    Return the currently active channels matching a <pattern> (default: '*').",
        "NUMPAT",
        "    Return number of subscriptions to patterns.",
        "NUMSUB [<channel> ...]",
        "    Return the number of subscribers for the specified channels, excluding",
        "    pattern subscriptions(default: no channels).",
        "SHARDCHANNELS [<pattern>]",
        "    Return the currently active shard level channels matching a <pattern> (default: '*').",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    Return the number of subscribers for the specified shard level channel(s)",
    ])
}
