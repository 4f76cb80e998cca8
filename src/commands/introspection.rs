//! COMMAND: the command table, for clients.

use crate::{
    command::{
        BeginSearch, Find,
        keys::{each_key, legacy_range},
        syntax::{self, Argument},
        table::{CommandId, Lookup, Table},
        tips,
    },
    commands::prelude::*,
    util::glob,
};

const SUB: Command = Command {
    group: "server",
    since: "2.8.13",
    flags: Flags::LOADING.and(Flags::STALE),
    categories: Categories::CONNECTION,
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "command",
    arity: -1,
    summary: "Returns detailed information about all commands.",
    complexity: "O(N) where N is the total number of commands",
    ..SUB
}
.by(Plain(all))
.containing(
    const {
        &[
            Command { name: "command|count", summary: "Returns a count of commands.", ..SUB }
                .by(Plain(count)),
            Command {
                name: "command|docs",
                syntax: "[command-name...]",
                since: "7.0.0",
                summary: "Returns documentary information about one, multiple or all commands.",
                complexity: "O(N) where N is the number of commands to look up",
                ..SUB
            }
            .by(Plain(docs)),
            Command {
                name: "command|getkeys",
                syntax: "command [arg...]",
                summary: "Extracts the key names from an arbitrary command.",
                complexity: "O(N) where N is the number of arguments to the command",
                ..SUB
            }
            .by(Plain(getkeys)),
            Command {
                name: "command|getkeysandflags",
                syntax: "command [arg...]",
                since: "7.0.0",
                summary: "Extracts the key names and access flags for an arbitrary command.",
                complexity: "O(N) where N is the number of arguments to the command",
                ..SUB
            }
            .by(Plain(getkeysandflags)),
            Command {
                name: "command|help",
                since: "5.0.0",
                summary: "Returns helpful text about the subcommands.",
                ..SUB
            }
            .by(Plain(help)),
            Command {
                name: "command|info",
                syntax: "[command-name...]",
                summary: "Returns information about one, multiple or all commands.",
                complexity: "O(N) where N is the number of commands to look up",
                ..SUB
            }
            .by(Plain(info)),
            Command {
                name: "command|list",
                syntax: "[FILTERBY=filterby<MODULE=module-name|ACLCAT=category|PATTERN=pattern:p>]",
                since: "7.0.0",
                summary: "Returns a list of command names.",
                complexity: "O(N) where N is the total number of commands",
                ..SUB
            }
            .by(Plain(list)),
        ]
    },
)];

const INVALID_COMMAND: Stop = Stop::new("ERR Invalid command specified");
const INVALID_ARITY: Stop = Stop::new("ERR Invalid number of arguments specified for command");
const INVALID_ARGUMENTS: Stop = Stop::new("ERR Invalid arguments specified for command");
const NO_KEYS: Stop = Stop::new("ERR The command has no key arguments");

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "(no subcommand)",
        "    Return details about all commands.",
        "COUNT",
        "    Return the total number of commands in this server.",
        "LIST",
        "    Return a list of all commands in this server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "GETKEYS <full-command>",
        "    Return the keys from a full command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys and the access flags from a full command.",
    ])
}

fn all(call: &mut Call) -> Answer {
    let table = call.table();
    call.out.array(table.top_level().len());
    for id in table.top_level() {
        write_info(&mut call.out, table, id);
    }
    Ok(Done)
}

fn count(call: &mut Call) -> Answer {
    call.reply_int(call.table().top_level().len() as i64)
}

fn info(call: &mut Call) -> Answer {
    if call.args.len() == 2 {
        return all(call);
    }
    let table = call.table();
    call.out.array(call.args.len() - 2);
    for name in call.args.from(2).iter() {
        match table.find_full(name) {
            Some(id) => write_info(&mut call.out, table, id),
            None => call.out.null(),
        }
    }
    Ok(Done)
}

fn docs(call: &mut Call) -> Answer {
    let table = call.table();
    let asked: Vec<CommandId> = if call.args.len() == 2 {
        table.top_level().collect()
    } else {
        call.args.from(2).iter().filter_map(|name| table.find_full(name)).collect()
    };
    call.out.map(asked.len());
    for id in asked {
        write_docs(&mut call.out, table, id);
    }
    Ok(Done)
}

fn list(call: &mut Call) -> Answer {
    let args = call.args;
    let filter: Box<dyn Fn(&Command) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        5 if call.is(2, "filterby") => {
            let what = args.at(4);
            if call.is(3, "module") {
                Box::new(|_| false)
            } else if call.is(3, "aclcat") {
                Box::new(move |command| {
                    command.all_categories().names().any(|name| name.as_bytes().eq_ignore_ascii_case(what))
                })
            } else if call.is(3, "pattern") {
                Box::new(move |command| glob::matches_any_case(what, command.name.as_bytes()))
            } else {
                return Err(SYNTAX);
            }
        }
        _ => return Err(SYNTAX),
    };
    let names: Vec<&str> =
        call.table().all().map(|(_, command)| command).filter(|c| filter(c)).map(|c| c.name).collect();
    call.out.array(names.len());
    for name in names {
        call.out.bulk(name);
    }
    Ok(Done)
}

fn getkeys(call: &mut Call) -> Answer {
    write_keys(call, false)
}

fn getkeysandflags(call: &mut Call) -> Answer {
    write_keys(call, true)
}

fn write_keys(call: &mut Call, with_flags: bool) -> Answer {
    let inner: Args = call.args.from(2);
    let Lookup::Found(id) = call.table().lookup(inner) else { return Err(INVALID_COMMAND) };
    let command = call.table().command(id);
    if command.keys.is_empty() {
        return Err(NO_KEYS);
    }
    if !command.accepts(inner.len()) {
        return Err(INVALID_ARITY);
    }
    let mut keys = Vec::new();
    each_key(command, inner, |index, access| keys.push((index, access))).map_err(|_| INVALID_ARGUMENTS)?;
    if keys.is_empty() && !command.flags.has(Flags::NO_MANDATORY_KEYS) {
        return Err(INVALID_ARGUMENTS);
    }
    call.out.array(keys.len());
    for (index, access) in keys {
        if with_flags {
            call.out.array(2);
        }
        call.out.bulk(inner.at(index));
        if with_flags {
            write_set(&mut call.out, access.names());
        }
    }
    Ok(Done)
}

fn write_set(out: &mut Writer, names: impl Iterator<Item = &'static str> + Clone) {
    out.set(names.clone().count());
    for name in names {
        out.simple(name);
    }
}

/// One element of COMMAND INFO.
fn write_info(out: &mut Writer, table: &Table, id: CommandId) {
    let command = table.command(id);
    let (first, last, step) = legacy_range(command);
    out.array(10);
    out.bulk(command.name);
    out.int(i64::from(command.arity));
    write_set(out, command.flags.names());
    out.int(first);
    out.int(last);
    out.int(step);
    let categories = command.all_categories().names();
    out.set(categories.clone().count());
    for category in categories {
        out.simple(format!("@{category}"));
    }
    let tips = tips::of(command.name);
    out.set(tips.len());
    tips.iter().for_each(|tip| out.bulk(tip));
    out.set(command.keys.len());
    for spec in command.keys {
        write_key_spec(out, spec);
    }
    let subcommands = table.subcommands(id);
    out.array(subcommands.len());
    for id in subcommands {
        write_info(out, table, id);
    }
}

fn write_key_spec(out: &mut Writer, spec: &KeySpec) {
    out.map(3);
    out.bulk("flags");
    write_set(out, spec.access.names());
    out.bulk("begin_search");
    match spec.begin {
        BeginSearch::Unknown => write_search(out, "unknown", &[]),
        BeginSearch::Index(index) => write_search(out, "index", &[("index", index as i64)]),
        BeginSearch::Keyword(word, from) => {
            out.map(2);
            out.key("type").bulk("keyword");
            out.key("spec").map(2);
            out.key("keyword").bulk(word);
            out.key("startfrom").int(i64::from(from));
        }
    }
    out.bulk("find_keys");
    match spec.find {
        Find::Unknown => write_search(out, "unknown", &[]),
        Find::Range { last, step, limit } => write_search(
            out,
            "range",
            &[("lastkey", i64::from(last)), ("keystep", step as i64), ("limit", limit as i64)],
        ),
        Find::KeyNum { index, first, step } => write_search(
            out,
            "keynum",
            &[("keynumidx", index as i64), ("firstkey", first as i64), ("keystep", step as i64)],
        ),
    }
}

fn write_search(out: &mut Writer, kind: &str, spec: &[(&str, i64)]) {
    out.map(2);
    out.key("type").bulk(kind);
    out.key("spec").map(spec.len());
    for (name, value) in spec {
        out.key(name).int(*value);
    }
}

/// One pair of COMMAND DOCS.
fn write_docs(out: &mut Writer, table: &Table, id: CommandId) {
    let (command, subcommands) = (table.command(id), table.subcommands(id));
    out.bulk(command.name);
    let arguments = syntax::parse(command.syntax);
    out.map(4 + usize::from(!arguments.is_empty()) + usize::from(subcommands.len() > 0));
    for (name, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ] {
        out.key(name).bulk(value);
    }
    if !arguments.is_empty() {
        out.bulk("arguments");
        write_arguments(out, &arguments);
    }
    if subcommands.len() > 0 {
        out.key("subcommands").map(subcommands.len());
        for id in subcommands {
            write_docs(out, table, id);
        }
    }
}

fn write_arguments(out: &mut Writer, arguments: &[Argument]) {
    out.array(arguments.len());
    for argument in arguments {
        let has_parts = !argument.parts.is_empty();
        let flags = [
            (argument.is_optional, "optional"),
            (argument.is_multiple, "multiple"),
            (argument.repeats_token, "multiple_token"),
        ];
        let flags = flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name));
        let more = [argument.token.is_some(), argument.since.is_some(), argument.key_spec.is_some()];
        // Its parts, or else what is shown of it.
        let len = 3 + usize::from(flags.clone().count() > 0) + more.into_iter().filter(|is| *is).count();
        out.map(len);
        let mut pair = |name: &str, value: &str| {
            out.key(name).bulk(value);
        };
        pair("name", &argument.name);
        pair("type", argument.kind.name());
        if !has_parts {
            pair("display_text", argument.display.unwrap_or(&argument.name));
        }
        if let Some(number) = argument.key_spec {
            out.key("key_spec_index").int(number.into());
        }
        for (name, value) in [("token", argument.token), ("since", argument.since)] {
            if let Some(value) = value {
                out.key(name).bulk(value);
            }
        }
        if flags.clone().count() > 0 {
            out.bulk("flags");
            write_set(out, flags);
        }
        if has_parts {
            out.bulk("arguments");
            write_arguments(out, &argument.parts);
        }
    }
}
