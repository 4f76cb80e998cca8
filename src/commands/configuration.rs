//! CONFIG.

use crate::{
    acl,
    admin::log::log,
    commands::prelude::*,
    config::{Opt, file, kind::Value, split_words},
    exec::keyspace::Keyspace,
    server::{Server, apply::apply},
    session::progress::Progress,
    util::glob,
};
use std::{path::Path, time::Duration};
use tokio::time::Instant;

const SUB: Command = Command {
    group: "server",
    since: "2.0.0",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "config",
    since: "2.0.0",
    group: "server",
    summary: "A container for server configuration commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
            Command {
                name: "config|get",
                syntax: "parameter...",
                summary: "Returns the effective values of configuration parameters.",
                complexity: "O(N) when N is the number of configuration parameters provided",
                ..SUB
            }
            .by(Plain(get)),
            Command {
                name: "config|help",
                since: "5.0.0",
                flags: Flags::LOADING.and(Flags::STALE),
                summary: "Returns helpful text about the subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command { name: "config|resetstat", summary: "Resets the server's statistics.", ..SUB }
                .by(Browsing(resetstat)),
            Command {
                name: "config|rewrite",
                since: "2.8.0",
                summary: "Persists the effective configuration to file.",
                ..SUB
            }
            .by(Plain(rewrite)),
            Command {
                name: "config|set",
                syntax: "data(parameter value)...",
                summary: "Sets configuration parameters in-flight.",
                complexity: "O(N) when N is the number of configuration parameters provided",
                ..SUB
            }
            .by(Plain(set)),
        ]
    },
)];

const NO_FILE: Stop = Stop::new("ERR The server is running without a config file");

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
    ])
}

fn get(call: &mut Call) -> Answer {
    let patterns = call.args.from(2);
    let is_wanted =
        |name: &str| patterns.iter().any(|pattern| glob::matches_any_case(pattern, name.as_bytes()));
    let mut found = Vec::new();
    for &opt in Opt::ALL {
        let spec = opt.spec();
        found.extend(
            [Some(spec.name), spec.alias]
                .into_iter()
                .flatten()
                .filter(|name| is_wanted(name))
                .map(|n| (n, opt)),
        );
    }
    call.out.map(found.len());
    for (name, opt) in found {
        // A name is shown as it was asked for.
        let asked = patterns.iter().find(|pattern| pattern.eq_ignore_ascii_case(name.as_bytes()));
        call.out.bulk(asked.unwrap_or(name.as_bytes()));
        let value = call.server().config.show(opt);
        call.out.bulk(value);
    }
    Ok(Done)
}

/// How often CONFIG SET looks whether memory is within a new limit, and for how long.
const MEMORY_TICK: Duration = Duration::from_millis(2);
const MEMORY_WAIT: Duration = Duration::from_secs(2);

fn set(call: &mut Call) -> Answer {
    let until = match call.session.progress.take() {
        Some(Progress::GiveBack(until)) => until,
        _ => {
            set_all(call)?;
            Instant::now() + MEMORY_WAIT
        }
    };
    // When it replies, what can leave memory at once has left.
    if call.server().store.is_making_room() && Instant::now() < until && !call.session.in_exec {
        call.session.progress = Some(Progress::GiveBack(until));
        return Ok(Outcome::postpone(MEMORY_TICK));
    }
    call.reply_ok()
}

fn set_all(call: &Call) -> Result<(), Stop> {
    if !call.args.len().is_multiple_of(2) {
        return Err(SYNTAX);
    }
    let pairs: Vec<(&[u8], &[u8])> =
        call.args.from(2).iter().zip(call.args.from(3).iter()).step_by(2).collect();
    let mut opts = Vec::new();
    for (name, value) in &pairs {
        let opt = std::str::from_utf8(name).ok().and_then(Opt::find).ok_or_else(|| unknown_option(name))?;
        // To what it is already it may be set, unlike in Redis: who sets all that CONFIG GET shows need not know these.
        if opt.spec().change.is_at_start() && call.server().config.show(opt).as_bytes() != *value {
            return Err(failed(name, "can't set immutable config"));
        }
        if opts.contains(&opt) {
            return Err(failed(name, "duplicate parameter"));
        }
        opts.push(opt);
    }

    // All or nothing: what was set before a failure is put back.
    let (server, config) = (call.server(), &call.server().config);
    let old: Vec<Value> = opts.iter().map(|&opt| config.load(opt)).collect();
    let put_back = || opts.iter().zip(old).for_each(|(&opt, value)| config.store(opt, value));
    let failed = |nth: usize, what: String| failed(&pairs[nth].0.to_ascii_lowercase(), &what);
    for (nth, &opt) in opts.iter().enumerate() {
        if let Err(what) = set_one(server, opt, pairs[nth].1) {
            put_back();
            return Err(failed(nth, what));
        }
    }
    // The password last, which cannot fail: the default user may have others by now than the option says, which are not put back.
    let (passwords, others): (Vec<usize>, Vec<usize>) =
        (0..opts.len()).partition(|&nth| opts[nth] == Opt::RequirePass);
    for (place, &nth) in others.iter().enumerate() {
        let Err(what) = apply(server, opts[nth]) else { continue };
        put_back();
        for opt in others[..=place].iter().map(|&nth| opts[nth]) {
            if let Err(what) = apply(server, opt) {
                log!(Warning, "cannot go back to the old value of {}: {what}", opt.spec().name);
            }
        }
        return Err(failed(nth, what));
    }
    passwords.into_iter().try_for_each(|nth| apply(server, opts[nth]).map_err(|what| failed(nth, what)))
}

fn set_one(server: &Server, opt: Opt, value: &[u8]) -> Result<(), String> {
    let value = std::str::from_utf8(value).map_err(|_| "argument must be UTF-8".to_owned())?;
    if opt.spec().kind.takes_many_words() {
        server.config.set(opt, &split_words(value))
    } else {
        server.config.set(opt, &[value])
    }
}

fn unknown_option(name: &[u8]) -> Stop {
    [b"ERR Unknown option or number of arguments for CONFIG SET - '", name, b"'"].concat().into()
}

fn failed(name: &[u8], what: &str) -> Stop {
    [b"ERR CONFIG SET failed (possibly related to argument '", name, b"') - ", what.as_bytes()]
        .concat()
        .into()
}

fn resetstat(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    call.server().reset_stats(keyspace.stats(&call.server().store)?);
    call.reply_ok()
}

fn rewrite(call: &mut Call) -> Answer {
    let config = &call.server().config;
    if config.path.is_none() {
        return Err(NO_FILE);
    }
    let users = if acl::has_file(config) { Vec::new() } else { acl::lines(&call.server().acl) };
    file::rewrite(config, &users).map_err(|e| {
        let path = config.path.as_deref().unwrap_or(Path::new("")).display();
        log!(Warning, "CONFIG REWRITE failed: cannot write {path}: {e}");
        format!("ERR Rewriting config file: {e}")
    })?;
    log!(Notice, "CONFIG REWRITE executed with success.");
    call.reply_ok()
}
