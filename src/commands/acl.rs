//! ACL: users and what they may do. Who is refused is decided in `exec/check.rs`.

use crate::{
    acl::{self, Selector, all_channels, has_space, now_ms},
    admin::log::log,
    command::{keys::CallKeys, table::Lookup},
    commands::prelude::*,
    exec::call::wrong_subcommand,
};
use data_encoding::HEXLOWER;
use rustix::rand::{GetRandomFlags, getrandom};

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

const SUB: Command = Command {
    group: "server",
    since: "6.0.0",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "acl",
    since: "6.0.0",
    group: "server",
    summary: "A container for Access List Control commands.",
    complexity: "O(1), depends on subcommand",
    ..Command::NEW
}
.container(
    const {
        &[
    Command {
        name: "acl|cat",
        syntax: "[category]",
        summary: "Lists the ACL categories, or the commands inside a category.",
        complexity: "O(1) since the categories and commands are a fixed set.",
        ..SUB
    }
    .by(Plain(cat)),
    Command {
        name: "acl|deluser",
        syntax: "username...",
        flags: ADMIN,
        summary: "Deletes ACL users, and terminates their connections.",
        complexity: "O(1) amortized time considering the typical user.",
        ..SUB
    }
    .by(Plain(deluser)),
    Command {
        name: "acl|dryrun",
        syntax: "username command [arg...]",
        since: "7.0.0",
        flags: ADMIN,
        summary: "Simulates the execution of a command by a user, without executing the command.",
        ..SUB
    }
    .by(Plain(dryrun)),
    Command {
        name: "acl|genpass",
        syntax: "[bits:i]",
        summary: "Generates a pseudorandom, secure password that can be used to identify ACL users.",
        ..SUB
    }
    .by(Plain(genpass)),
    Command {
        name: "acl|getuser",
        syntax: "username",
        flags: ADMIN,
        summary: "Lists the ACL rules of a user.",
        complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
        ..SUB
    }
    .by(Plain(getuser)),
    Command {
        name: "acl|help",
        flags: Flags::LOADING.and(Flags::STALE),
        summary: "Returns helpful text about the different subcommands.",
        ..SUB
    }
    .by(Plain(help)),
    Command {
        name: "acl|list",
        flags: ADMIN,
        summary: "Dumps the effective rules in ACL file format.",
        complexity: "O(N). Where N is the number of configured users.",
        ..SUB
    }
    .by(Plain(list)),
    Command {
        name: "acl|load",
        flags: ADMIN,
        summary: "Reloads the rules from the configured ACL file.",
        complexity: "O(N). Where N is the number of configured users.",
        ..SUB
    }
    .by(Plain(load)),
    Command {
        name: "acl|log",
        syntax: "[operation<count:i|RESET>]",
        flags: ADMIN,
        summary: "Lists recent security events generated due to ACL rules.",
        complexity: "O(N) with N being the number of entries shown.",
        ..SUB
    }
    .by(Plain(show_log)),
    Command {
        name: "acl|save",
        flags: ADMIN,
        summary: "Saves the effective ACL rules in the configured ACL file.",
        complexity: "O(N). Where N is the number of configured users.",
        ..SUB
    }
    .by(Plain(save)),
    Command {
        name: "acl|setuser",
        syntax: "username [rule...]",
        flags: ADMIN,
        summary: "Creates and modifies an ACL user and its rules.",
        complexity: "O(N). Where N is the number of rules provided.",
        ..SUB
    }
    .by(Plain(setuser)),
    Command {
        name: "acl|users",
        flags: ADMIN,
        summary: "Lists all ACL users.",
        complexity: "O(N). Where N is the number of configured users.",
        ..SUB
    }
    .by(Plain(users)),
    Command {
        name: "acl|whoami",
        summary: "Returns the authenticated username of the current connection.",
        ..SUB
    }
    .by(Plain(whoami)),
]
    },
)];

const BAD_NAME: Stop = Stop::new("ERR Usernames can't contain spaces or null characters");
const KEEP_DEFAULT: Stop = Stop::new("ERR The 'default' user cannot be removed");
const NO_FILE: Stop = Stop::new(
    "ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command \
     and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the \
     configuration.",
);
const NOT_SAVED: Stop = Stop::new(
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
);
const BAD_BITS: Stop = Stop::new(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
);

fn help(call: &mut Call) -> Answer {
    call.help(&[
        "CAT [<category>]",
        "    List all commands that belong to <category>, or all command categories",
        "    when no category is specified.",
        "DELUSER <username> [<username> ...]",
        "    Delete a list of users.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Returns whether the user can execute the given command without executing the command.",
        "GETUSER <username>",
        "    Get the user's details.",
        "GENPASS [<bits>]",
        "    Generate a secure 256-bit user password. The optional `bits` argument can",
        "    be used to specify a different size.",
        "LIST",
        "    Show users details in config file format.",
        "LOAD",
        "    Reload users from the ACL file.",
        "LOG [<count> | RESET]",
        "    Show the ACL log entries.",
        "SAVE",
        "    Save the current config to the ACL file.",
        "SETUSER <username> <attribute> [<attribute> ...]",
        "    Create or modify a user with the specified attributes.",
        "USERS",
        "    List all the registered usernames.",
        "WHOAMI",
        "    Return the current connection username.",
    ])
}

fn whoami(call: &mut Call) -> Answer {
    call.out.bulk(&call.session.user.name);
    Ok(Done)
}

fn users(call: &mut Call) -> Answer {
    let users = call.server().acl.all();
    call.out.array(users.len());
    for user in users {
        call.out.bulk(&user.name);
    }
    Ok(Done)
}

fn list(call: &mut Call) -> Answer {
    let lines = acl::lines(&call.server().acl);
    call.out.array(lines.len());
    for line in lines {
        call.out.bulk(line);
    }
    Ok(Done)
}

fn setuser(call: &mut Call) -> Answer {
    let name = call.args.at(2);
    if has_space(name) {
        return Err(BAD_NAME);
    }
    let server = call.server();
    server.acl.set_user(name, call.args.from(3).iter(), all_channels(&server.config))?;
    if let Some(user) = server.acl.get(name) {
        server.kill_forbidden_subscribers(&user);
    }
    call.reply_ok()
}

fn deluser(call: &mut Call) -> Answer {
    let names = call.args.from(2);
    if names.iter().any(|name| name == acl::DEFAULT) {
        return Err(KEEP_DEFAULT);
    }
    let server = call.server();
    let mut removed = 0;
    let mut own = false;
    for name in names.iter().filter(|name| server.acl.remove(name)) {
        removed += 1;
        own |= server.kill_clients_of(name, call.session.client.id);
    }
    call.out.int(removed);
    Ok(if own { Close } else { Done })
}

fn getuser(call: &mut Call) -> Answer {
    let Some(user) = call.server().acl.get(call.args.at(2)) else {
        call.out.null();
        return Ok(Done);
    };
    let rules = user.rules();
    let out = &mut call.out;
    out.map(6);
    out.key("flags").set(rules.flags().count());
    rules.flags().for_each(|flag| out.bulk(flag));
    out.key("passwords").array(rules.passwords().len());
    rules.passwords().for_each(|hash| out.bulk(hash));
    let (own, others) = rules.selectors().split_first().expect("the user's own");
    write_selector(out, own);
    out.key("selectors").array(others.len());
    for selector in others {
        out.map(3);
        write_selector(out, selector);
    }
    Ok(Done)
}

/// Three pairs of a map.
fn write_selector(out: &mut Writer, selector: &Selector) {
    for (name, value) in [
        ("commands", selector.describe_commands()),
        ("keys", selector.describe_keys()),
        ("channels", selector.describe_channels()),
    ] {
        out.key(name).bulk(value);
    }
}

fn load(call: &mut Call) -> Answer {
    let server = call.server();
    if !acl::has_file(&server.config) {
        return Err(NO_FILE);
    }
    let gone = acl::load(&server.acl, &server.config).map_err(|what| format!("ERR {what}"))?;
    let own_id = call.session.client.id;
    let own = gone.iter().fold(false, |own, name| own | server.kill_clients_of(name, own_id));
    server.acl.all().iter().for_each(|user| server.kill_forbidden_subscribers(user));
    call.out.ok();
    Ok(if own { Close } else { Done })
}

fn save(call: &mut Call) -> Answer {
    let server = call.server();
    if !acl::has_file(&server.config) {
        return Err(NO_FILE);
    }
    acl::save(&server.acl, &server.config).map_err(|e| {
        log!(Warning, "ACL SAVE failed: {e}");
        NOT_SAVED
    })?;
    call.reply_ok()
}

fn cat(call: &mut Call) -> Answer {
    match call.args.len() {
        2 => {
            call.out.array(Categories::NAMES.len());
            Categories::NAMES.iter().for_each(|name| call.out.bulk(name));
        }
        3 => {
            let name = call.args.at(2);
            let category = Categories::named(name)
                .ok_or_else(|| [b"ERR Unknown category '", &name[..name.len().min(128)], b"'"].concat())?;
            let names: Vec<&str> = call
                .server()
                .table
                .all()
                .filter(|(_, command)| command.all_categories().has(category))
                .map(|(_, command)| command.name)
                .collect();
            call.out.array(names.len());
            names.iter().for_each(|name| call.out.bulk(name));
        }
        _ => return Err(wrong_subcommand(call.args)),
    }
    Ok(Done)
}

fn genpass(call: &mut Call) -> Answer {
    let bits = match call.args.len() {
        2 => 256,
        3 => call.int(2)?,
        _ => return Err(wrong_subcommand(call.args)),
    };
    if !(1..=4096).contains(&bits) {
        return Err(BAD_BITS);
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    // So few bytes come as a whole.
    getrandom(&mut random[..], GetRandomFlags::empty()).expect("Linux has getrandom since 3.17");
    let mut text = HEXLOWER.encode(&random);
    text.truncate(digits);
    call.reply_bulk(text)
}

fn dryrun(call: &mut Call) -> Answer {
    let (name, inner) = (call.args.at(2), call.args.from(3));
    let user = call.server().acl.get(name).ok_or_else(|| [b"ERR User '", name, b"' not found"].concat())?;
    let Lookup::Found(id) = call.table().lookup(inner) else {
        return Err([b"ERR Command '", inner.at(0), b"' not found"].concat().into());
    };
    let command = call.table().command(id);
    if !command.accepts(inner.len()) {
        return Err(wrong_arity(command));
    }
    match user.may_run(id, inner, &CallKeys::default()) {
        Ok(()) => call.out.ok(),
        Err(denied) => call.out.bulk(denied.describe(call.table(), &user, id, inner)),
    }
    Ok(Done)
}

fn show_log(call: &mut Call) -> Answer {
    let log = &call.server().acl.log;
    let count = match call.args.len() {
        2 => 10,
        3 if call.is(2, "reset") => {
            log.clear();
            call.out.ok();
            return Ok(Done);
        }
        3 => call.int(2)?.max(0),
        _ => return Err(wrong_subcommand(call.args)),
    };
    let entries = log.newest(count as usize);
    let now_ms = now_ms();
    call.out.array(entries.len());
    for entry in entries {
        let out = &mut call.out;
        out.map(10);
        out.key("count").int(entry.count as i64);
        out.key("reason").bulk(entry.reason);
        out.key("context").bulk(entry.context.name());
        out.key("object").bulk(entry.object);
        out.key("username").bulk(entry.user);
        out.key("age-seconds").double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        out.key("client-info").bulk(entry.client);
        out.key("entry-id").int(entry.id as i64);
        out.key("timestamp-created").int(entry.created_ms as i64);
        out.key("timestamp-last-updated").int(entry.updated_ms as i64);
    }
    Ok(Done)
}
