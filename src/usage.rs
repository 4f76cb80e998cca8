//! What the program can be told on its command line, for its help, its man page and the completions of shells. What is told is understood
//! by `crate::cli`.

use std::fmt::Write;

/// A command of the program.
pub struct Subcommand {
    /// The first argument.
    pub name: &'static str,
    /// How it is called, and in short what that does.
    pub calls: &'static [(&'static str, &'static str)],
    /// All about it; empty if there is no more to say.
    pub help: &'static str,
    /// Its flags, each with the name of its value, or none.
    pub flags: &'static [(&'static str, &'static str)],
    /// Whether it connects to a server, and so has [`CONNECTING_FLAGS`] as well.
    pub connects: bool,
}

/// The flags of all commands that connect to a server.
pub const CONNECTING_FLAGS: [(&str, &str); 7] = [
    ("--user", "NAME"),
    ("--password", "PASSWORD"),
    ("--tls", ""),
    ("--cacert", "FILE"),
    ("--cert", "FILE"),
    ("--key", "FILE"),
    ("--sni", "NAME"),
];

const CONNECTING_HELP: &str = "
With --tls it connects by TLS. The server's certificate must be for its host, or for --sni NAME, and signed by one of those in --cacert
FILE, or else by one that the system knows. --cert FILE and --key FILE are the client's own. All files are in PEM.
";

/// What the program is.
pub const ABOUT: &str = "a Redis-compatible store that never loses an acknowledged write";

/// All commands.
pub const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "serve",
        calls: &[("holdfast [serve] [FILE] [--OPTION VALUE …]", "serve clients, with the options of FILE (-: standard input), as redis-server does")],
        help: "\
Serves clients until SIGTERM, SIGINT or the command SHUTDOWN. Options are those of Redis, each as --OPTION VALUE or as a line
OPTION VALUE of FILE, a file of Redis's syntax; those of the command line count. Without arguments it serves on port 6379, with its
data in ./holdfast-data, or in the current folder if that is a data folder already.
",
        flags: &[],
        connects: false,
    },
    Subcommand {
        name: "check",
        calls: &[
            ("holdfast check DIR", "verify a data folder that is not in use, or a folder of backups; changes nothing"),
            ("holdfast check --salvage DIR NEW", "copy what is intact in a damaged data folder into a new one"),
        ],
        help: "\
Verifies all checksums and structures, and names file and offset of what is wrong first.

With --salvage, copies every key that is provably intact out of the data folder DIR, which may be damaged or miss files, into the new data folder NEW,
which must not exist or be empty. DIR is not changed, and must not be in use. Each part of a file that is damaged and each key that is lost is printed on a
line, with file, offset and cause.

Keys that were found, but may be older than what DIR held, or deleted, are printed, too, and go into a data folder of their own, NEW/may-be-older: to be
looked at, by a server or holdfast export. If the log has lost something that was durable, all keys in NEW are as they were before that.

The exit code of --salvage is 0 if all is intact, 2 if something is damaged, lost or may be older, and 1 if nothing could be done.
",
        flags: &[("--salvage", "")],
        connects: false,
    },
    Subcommand {
        name: "backup",
        calls: &[("holdfast backup --from ADDRESS DIR", "back up a server that runs into a folder of backups")],
        help: "\
Backs up a server that runs, on this machine, as it is at one moment, while it goes on. ADDRESS is HOST:PORT or the path of a Unix
socket. DIR is a new folder, or one with earlier backups of the same server: then only what is new is written. Everything is checked
by its checksums on the way. This process reads the server's data folder, and so needs the rights to.

--rate limits the bytes that are copied in a second, e.g. 50mb. Instead of --password, the variable HOLDFAST_PASSWORD may hold the
password. The server keeps what is copied until the end; if it needs that room for itself, the backup fails.

Each backup has a number, counted from 1. To remove one, remove its file DIR/backup-NUMBER; the next backup removes what only that one
needed. holdfast check DIR verifies all of them, and holdfast restore makes a data folder of one.
",
        flags: &[("--from", "ADDRESS"), ("--rate", "BYTES")],
        connects: true,
    },
    Subcommand {
        name: "restore",
        calls: &[("holdfast restore DIR NEW", "make a new data folder of a backup")],
        help: "\
Makes the data folder NEW, which must not exist or be empty, of a backup in DIR: of the last one, unless --backup names another.
All of it is checked on the way.

With --lsn or --time it is the last state up to that point which the backups have, between them, too, as far as the log was kept; holdfast check DIR
says which LSNs can be restored. T is a time of UTC such as 2026-03-01T11:59:30Z, or Unix time in seconds. A time is that of the log's clock marks,
one a second: so up to a second less may be restored, and a state up to T only if the backups have something later.
",
        flags: &[("--backup", "NUMBER"), ("--lsn", "N"), ("--time", "T")],
        connects: false,
    },
    Subcommand {
        name: "import",
        calls: &[("holdfast import FROM [--OPTION VALUE …]", "put what Redis or Valkey has saved into a new data folder"), ("holdfast import FROM --to ADDRESS", "the same into a server that runs")],
        help: "\
FROM is an RDB file, of Redis (versions up to 12 of the format) or of Valkey (up to 9.0), an append-only file, or the folder
of one with its manifest. What a crash has torn off the end of an append-only file, a part of a command or of a transaction, is
left out, as with aof-load-truncated yes, and it is told how many bytes that is; all other damage is refused.

Without --to, it makes a new data folder: --dir names it, and must not exist or be empty; other options of the server may
follow. The folder gets its name when all is in it and durable; if anything is wrong, there is none. Until then it is made in a
folder beside it, DIR.importing; what an import that was killed has left there, the next one into the same place removes.

With --to HOST:PORT or the path of a Unix socket, a server that runs takes the data, one key after another. The server must
be empty, unless --replace is given: then keys that it has give way. All of the file is verified before anything is sent. If it
ends early, because the server refuses a key or by a signal, it tells how many keys have arrived.
Instead of --password, the variable HOLDFAST_PASSWORD may hold the password. Only RDB files can be imported so.
",
        flags: &[("--to", "ADDRESS"), ("--replace", "")],
        connects: true,
    },
    Subcommand {
        name: "export",
        calls: &[("holdfast export DIR FILE", "write what a data folder or a backup holds to an RDB file"), ("holdfast export --from ADDRESS FILE", "the same of a server that runs")],
        help: "\
Writes what is in DIR, all databases and libraries of functions, to an RDB file that Redis and Valkey load. DIR is a data folder that no
server uses, or a folder of backups, of which the last one is written. It stays as it is. FILE must not be there yet, and gets its name when all
of it is written.

With --from, it is what a server that runs on this machine holds at one moment, while it goes on. ADDRESS is HOST:PORT or the path of a Unix socket. What the
server would free meanwhile it keeps until FILE is written; if it needs that room, its writes go on, and the export fails. --rate limits the bytes of FILE that
are written in a second. Instead of --password, the variable HOLDFAST_PASSWORD may hold the password.

The version of the format is 11, of Redis 7.2 and Valkey 8, unless there is a hash whose fields expire: then it is 12, of Redis 7.4.
--rdb-version sets it to 10, of Redis 7.0 (which does not know when consumers of streams were last active), 11 or 12.
",
        flags: &[("--from", "ADDRESS"), ("--rate", "BYTES"), ("--rdb-version", "N")],
        connects: true,
    },
    Subcommand {
        name: "compare",
        calls: &[("holdfast compare FROM TO", "tell whether two servers that run hold the same")],
        help: "\
Tells whether the server TO holds what the server FROM does: numbers of keys, and of each key of FROM type, value, and when it expires. Both may be
Holdfast, Redis or Valkey; FROM and TO are HOST:PORT or paths of Unix sockets. A key that differs is looked at again for two seconds, so that both may be
written, if TO is a replica. Values are read whole. The exit code is 0 if nothing differs.

--sample compares about N keys, by chance, and not all. Instead of --password, the variable HOLDFAST_PASSWORD may hold the password; TO has the same user
and password unless others are given.
",
        flags: &[("--sample", "N"),  ("--to-user", "NAME"), ("--to-password", "PASSWORD")],
        connects: true,
    },
    Subcommand {
        name: "top",
        calls: &[("holdfast top [ADDRESS]", "show how a server that runs is doing, each second")],
        help: "\
Shows how a server that runs is doing: what is wrong, throughput, latency, hits, memory, log, medium, clients, busiest and slow
commands. ADDRESS is HOST:PORT or the path of a Unix socket; without it, localhost:6379. It looks each second, by INFO,
LATENCY HISTOGRAM and SLOWLOG GET, which the user must be allowed; q ends it.

With --once it prints what a second shows, and ends. So it does each second, for good, where it does not print to a terminal.
Instead of --password, the variable HOLDFAST_PASSWORD may hold the password.
",
        flags: &[("--once", "")],
        connects: true,
    },
    Subcommand {
        name: "cluster",
        calls: &[
            ("holdfast cluster create ADDRESS ADDRESS ADDRESS [ADDRESS …]", "make a cluster of servers that run"),
            ("holdfast cluster status ADDRESS", "tell how a cluster is, and what is wrong"),
            ("holdfast cluster add ADDRESS NEW", "take a server into a cluster"),
            ("holdfast cluster balance ADDRESS", "give each node as many slots as any other"),
            ("holdfast cluster move ADDRESS --from NODE --to NODE [--slots N]", "give slots of a node to another one"),
            ("holdfast cluster remove ADDRESS NODE", "give a node's slots to the others, and leave it out"),
        ],
        help: "\
Makes a cluster of servers that were started with cluster-enabled yes and are empty, and changes it while it is used. ADDRESS is HOST:PORT of a
node, any of them where there is a cluster already. NODE is the name of a node, or as much of its beginning as no other one has, or HOST:PORT.

Slots are moved as a whole, with all that is in them, by CLUSTER MIGRATESLOTS: clients go on meanwhile. status has the exit code 0 if all slots are
served. Instead of --password, the variable HOLDFAST_PASSWORD may hold the password. The tools of redis-cli for clusters work as well.
",
        flags: &[("--from", "NODE"), ("--to", "NODE"), ("--slots", "N")],
        connects: true,
    },
    Subcommand {
        name: "ping",
        calls: &[("holdfast ping [ADDRESS]", "tell whether a server answers, for health checks")],
        help: "\
Sends PING to the server at ADDRESS, HOST:PORT or the path of a Unix socket; without it, localhost:6379. The exit code is 0 if it answers
PONG within five seconds. Instead of --password, the variable HOLDFAST_PASSWORD may hold the password.
",
        flags: &[],
        connects: true,
    },
    Subcommand {
        name: "config",
        calls: &[("holdfast config", "print a configuration file with all options, explained")],
        help: "",
        flags: &[],
        connects: false,
    },
    Subcommand {
        name: "commands",
        calls: &[("holdfast commands", "list the commands, in Markdown")],
        help: "",
        flags: &[],
        connects: false,
    },
    Subcommand {
        name: "man",
        calls: &[("holdfast man", "print this program's page for man")],
        help: "",
        flags: &[],
        connects: false,
    },
    Subcommand {
        name: "completions",
        calls: &[("holdfast completions", "print completions for bash")],
        help: "",
        flags: &[],
        connects: false,
    },
    Subcommand {
        name: "help",
        calls: &[("holdfast help", "show this; all about a command by holdfast COMMAND --help")],
        help: "",
        flags: &[],
        connects: false,
    },
];

/// The command of a name.
pub fn find(name: &str) -> Option<&'static Subcommand> {
    SUBCOMMANDS.iter().find(|command| command.name == name)
}

/// What `holdfast --help` prints.
pub fn all() -> String {
    let mut text = format!("Holdfast: {ABOUT}\n\nUsage:\n");
    let calls = || SUBCOMMANDS.iter().flat_map(|command| command.calls);
    let width = calls().map(|(call, _)| call.chars().count()).max().unwrap_or(0);
    for (call, about) in calls().chain(&[("holdfast --version", "print the version")]) {
        writeln!(text, "  {call:width$}  {about}").expect(STRING);
    }
    text.push_str("\nAll about a command: holdfast COMMAND --help\n");
    text
}

impl Subcommand {
    /// Its flags, those of commands that connect among them.
    pub fn all_flags(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let connecting = if self.connects { &CONNECTING_FLAGS[..] } else { &[] };
        self.flags.iter().chain(connecting).copied()
    }

    /// All about it.
    pub fn explanation(&self) -> String {
        format!("{}{}", self.help, if self.connects { CONNECTING_HELP } else { "" })
    }

    /// How it is called, with all its flags.
    pub fn synopsis(&self) -> Vec<String> {
        let with_flags = |call: &str| {
            let mut line = call.to_owned();
            for (flag, value) in self.all_flags().filter(|(flag, _)| !call.contains(flag)) {
                let value = if value.is_empty() { String::new() } else { format!(" {value}") };
                write!(line, " [{flag}{value}]").expect(STRING);
            }
            line
        };
        match self.calls {
            [(call, _)] => vec![with_flags(call)],
            // The flags are those of the last way to call it.
            [calls @ .., (last, _)] => {
                let plain = calls.iter().map(|(call, _)| call.to_string());
                plain.chain([with_flags(last)]).collect()
            }
            [] => Vec::new(),
        }
    }

    /// What `--help` prints.
    pub fn usage(&self) -> String {
        let mut text = "Usage:\n".to_owned();
        for line in self.synopsis() {
            writeln!(text, "  {line}").expect(STRING);
        }
        let (_, about) = self.calls[0];
        match &self.explanation()[..] {
            "" => writeln!(text, "\nTo {about}.").expect(STRING),
            help => write!(text, "\n{help}").expect(STRING),
        }
        text
    }
}

const STRING: &str = "writing to a string cannot fail";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The flags that a text speaks of.
    fn flags(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        let is_flag =
            |word: &&str| word.starts_with("--") && word[2..].starts_with(|c: char| c.is_ascii_lowercase());
        words.filter(is_flag).collect()
    }

    #[test]
    fn the_help_of_a_command_explains_its_flags_and_no_others() {
        for command in SUBCOMMANDS {
            let known: BTreeSet<&str> = command.all_flags().map(|(flag, _)| flag).collect();
            let usage = command.usage();
            // Of all commands; and an option of the server, by which an import names the folder.
            let explained = flags(&usage).into_iter().filter(|flag| !["--help", "--dir"].contains(flag));
            let explained: BTreeSet<&str> = explained.collect();
            assert_eq!(explained, known, "{}", command.name);
        }
    }
}
