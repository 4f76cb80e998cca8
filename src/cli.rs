//! The command line: `holdfast [serve] [FILE] [--option value …]`, and the other commands of the program.

use crate::{
    backup::{BackupRequest, RestoreRequest, Restored},
    cluster_admin::{self, Task},
    compare,
    config::{
        Config, Opt,
        file::{self, ConfigError},
        kind::parse_memory,
        options::edit_distance,
    },
    document, export,
    import::{self, Address, Destination, Login, Secure},
    manual, ping,
    salvage::SalvageRequest,
    top,
    usage::{self, SUBCOMMANDS},
    util::version::VERSION,
};
use holdfast_store::Until;
use jiff::Timestamp;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

/// What the command line asks for.
pub enum Request {
    /// Serve with these options.
    Serve(Box<Config>),
    /// Verify a data folder.
    Check(PathBuf),
    /// Copy what is intact in a damaged data folder.
    Salvage(SalvageRequest),
    /// Import what another server has saved.
    Import(Box<import::Request>),
    /// Show the figures of a server that runs.
    Top(top::Request),
    /// Write what a data folder holds to an RDB file.
    Export(export::Request),
    /// Write what a server that runs holds at one moment, which has started this process for that.
    ExportMoment(export::Moment),
    /// Compare two servers.
    Compare(compare::Request),
    /// Make a cluster, tell how it is, or change it.
    Cluster(cluster_admin::Request),
    /// Back up a server that runs.
    Backup(BackupRequest),
    /// Make a data folder of a backup.
    Restore(RestoreRequest),
    /// Ask a server whether it is there.
    Ping(ping::Request),
    /// Print this and exit.
    Print(String),
}

/// Understands the arguments after the program's name.
pub fn parse(args: &[String]) -> Result<Request, ConfigError> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let is_help = |arg: &&str| matches!(*arg, "--help" | "-h");
    if let [name, rest @ ..] = args.as_slice()
        && let Some(command) = usage::find(name).filter(|_| rest.iter().any(is_help))
    {
        let text = if command.name == "serve" { serve_help() } else { command.usage() };
        return Ok(Request::Print(text));
    }
    match args.as_slice() {
        ["commands"] => Ok(Request::Print(document::commands())),
        ["config"] => Ok(Request::Print(manual::config_file())),
        ["man"] => Ok(Request::Print(manual::man_page())),
        ["completions"] => Ok(Request::Print(manual::bash_completions())),
        ["backup", rest @ ..] => backup(rest),
        ["restore", rest @ ..] => restore(rest),
        ["check", rest @ ..] => match rest {
            [dir] if !dir.starts_with('-') => Ok(Request::Check(PathBuf::from(dir))),
            ["--salvage", dir, to] | [dir, "--salvage", to] | [dir, to, "--salvage"]
                if !dir.starts_with('-') && !to.starts_with('-') =>
            {
                Ok(Request::Salvage(SalvageRequest { dir: PathBuf::from(dir), to: PathBuf::from(to) }))
            }
            ["--salvage", ..] => Err(ConfigError::new(
                "check --salvage needs the damaged data folder and a new one: holdfast check --salvage DIR NEW".into(),
            )),
            _ => Err(ConfigError::new(
                "check needs the data folder, and nothing else: holdfast check DIR".into(),
            )),
        },
        // What a server calls, for a client of SYNC; nobody else has the plan that it takes.
        ["export-moment", dir, version, parts] => Ok(Request::ExportMoment(export::Moment {
            dir: PathBuf::from(dir),
            version: version.parse().ok(),
            parts: export::Parts { keys: parts.contains("keys"), functions: parts.contains("functions") },
        })),
        ["export", rest @ ..] => export(rest),
        ["compare", rest @ ..] => compare(rest),
        ["cluster", rest @ ..] => cluster(rest),
        ["import", rest @ ..] => import(rest),
        ["top", rest @ ..] => top(rest),
        ["ping", rest @ ..] => ping(rest),
        ["help" | "--help" | "-h", ..] => Ok(Request::Print(usage::all())),
        ["--version" | "-v", ..] => Ok(Request::Print(format!("holdfast {VERSION}\n"))),
        ["serve", rest @ ..] => serve(rest),
        [word, ..] if is_mistaken_command(word) => {
            let hint = SUBCOMMANDS.iter().find(|command| edit_distance(word, command.name) <= 2);
            let hint = hint
                .map(|command| format!("; did you mean 'holdfast {}'?", command.name))
                .unwrap_or_default();
            let what = format!("'{word}' is neither a command nor a configuration file that is there{hint}");
            Err(ConfigError::new(format!("{what}\nSee holdfast --help.")))
        }
        rest => serve(rest),
    }
}

/// Whether the first argument is more likely a command that does not exist than a configuration file that is missing: it is
/// one plain word.
fn is_mistaken_command(word: &str) -> bool {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_plain && !Path::new(word).exists()
}

fn serve(args: &[&str]) -> Result<Request, ConfigError> {
    let mut config = Config::default();
    let mut rest = args;
    if let [path, after @ ..] = args
        && !path.starts_with("--")
    {
        file::read(&config, path.as_ref())?;
        // An absolute path, so that CONFIG REWRITE finds it.
        config.path = std::path::absolute(path).ok().filter(|_| *path != "-");
        rest = after;
    }
    set_options(&config, rest)?;
    Ok(Request::Serve(Box::new(config)))
}

/// Sets options from `--OPTION VALUE …` and `--OPTION=VALUE`.
fn set_options(config: &Config, mut rest: &[&str]) -> Result<(), ConfigError> {
    config.begin_source();
    while let [flag, after @ ..] = rest {
        let Some(name) = flag.strip_prefix("--") else {
            return Err(ConfigError::new(format!("unexpected argument '{flag}'; see holdfast --help")));
        };
        if let Some((name, value)) = name.split_once('=') {
            file::set(config, name, &[value])?;
            rest = after;
        } else {
            let values = after.iter().take_while(|arg| !arg.starts_with("--")).count();
            file::set(config, name, &after[..values])?;
            rest = &after[values..];
        }
    }
    Ok(())
}

/// How a command connects to a server, by the flags of [`usage::CONNECTING_FLAGS`].
struct Connecting {
    login: Login,
    is_secure: bool,
    secure: Secure,
}

impl Connecting {
    fn new() -> Connecting {
        let login = Login { user: None, password: std::env::var("HOLDFAST_PASSWORD").ok() };
        Connecting { login, is_secure: false, secure: Secure::default() }
    }

    /// Takes in a flag and its value; whether it is one of these.
    fn take(
        &mut self,
        flag: &str,
        value: &mut dyn FnMut() -> Result<String, ConfigError>,
    ) -> Result<bool, ConfigError> {
        match flag {
            "--user" => self.login.user = Some(value()?),
            "--password" => self.login.password = Some(value()?),
            "--tls" => self.is_secure = true,
            "--cacert" => self.secure.ca_file = Some(value()?.into()),
            "--cert" => self.secure.cert_file = Some(value()?.into()),
            "--key" => self.secure.key_file = Some(value()?.into()),
            "--sni" => self.secure.name = Some(value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn address(&self, address: Address) -> Address {
        if self.is_secure { address.secured(self.secure.clone()) } else { address }
    }
}

fn default_address() -> Address {
    Address::Tcp("localhost".into(), 6379)
}

fn import(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast import --help"));
    let Some((from, rest)) = args.split_first().filter(|(from, _)| !from.starts_with('-')) else {
        return Err(wrong("import needs a file, or the folder of an append-only file"));
    };
    let (from, to) = (PathBuf::from(from), rest.iter().position(|arg| *arg == "--to"));
    if to.is_none() {
        let config = Config::default();
        config.set(Opt::LogLevel, &["warning"]).expect("a level");
        set_options(&config, rest)?;
        if !config.more_dirs().is_empty() || config.flash_dir().is_some() {
            return Err(wrong("an import makes one folder; name further ones when the server starts"));
        }
        let to = Destination::Folder(Box::new(config));
        return Ok(Request::Import(Box::new(import::Request { from, to })));
    }
    let (mut address, mut replace, mut connecting) = (None, false, Connecting::new());
    let mut rest = rest.iter();
    while let Some(flag) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{flag} needs a value")))
        };
        match *flag {
            "--replace" => replace = true,
            "--to" => address = Some(value()?.parse().map_err(|what: String| wrong(&what))?),
            flag if connecting.take(flag, &mut value)? => {}
            _ => return Err(wrong(&format!("unexpected argument '{flag}'"))),
        }
    }
    let address = connecting.address(address.expect("it is among the arguments"));
    let Login { user, password } = connecting.login;
    let to = Destination::Server { address, user, password, replace };
    Ok(Request::Import(Box::new(import::Request { from, to })))
}

fn top(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast top --help"));
    let (mut address, mut once, mut connecting) = (None, false, Connecting::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            "--once" => once = true,
            flag if connecting.take(flag, &mut value)? => {}
            text if address.is_none() && !text.starts_with('-') => {
                address = Some(text.parse().map_err(|what: String| wrong(&what))?);
            }
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    let address = connecting.address(address.unwrap_or(default_address()));
    Ok(Request::Top(top::Request { address, login: connecting.login, once }))
}

fn ping(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast ping --help"));
    let (mut address, mut connecting) = (None, Connecting::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            flag if connecting.take(flag, &mut value)? => {}
            text if address.is_none() && !text.starts_with('-') => {
                address = Some(text.parse().map_err(|what: String| wrong(&what))?);
            }
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    let address = connecting.address(address.unwrap_or(default_address()));
    Ok(Request::Ping(ping::Request { address, login: connecting.login }))
}

fn compare(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast compare --help"));
    let (mut addresses, mut sample) = (Vec::new(), None);
    let mut connecting = Connecting::new();
    let (mut to_user, mut to_password) = (None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            "--sample" => {
                let text = value()?;
                sample = Some(text.parse().map_err(|_| wrong(&format!("'{text}' is no number of keys")))?);
            }
            "--to-user" => to_user = Some(value()?),
            "--to-password" => to_password = Some(value()?),
            flag if connecting.take(flag, &mut value)? => {}
            address if addresses.len() < 2 && !address.starts_with('-') => {
                addresses.push(address.parse().map_err(|what: String| wrong(&what))?);
            }
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    let addresses: [Address; 2] =
        addresses.try_into().map_err(|_| wrong("compare needs the addresses of two servers"))?;
    let [from_address, to_address] = addresses.map(|address| connecting.address(address));
    let from = connecting.login;
    let to_login =
        Login { user: to_user.or(from.user.clone()), password: to_password.or(from.password.clone()) };
    Ok(Request::Compare(compare::Request {
        from: from_address,
        from_login: from,
        to: to_address,
        to_login,
        sample,
    }))
}

fn cluster(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast cluster --help"));
    let parse = |text: &str| text.parse::<Address>().map_err(|what| wrong(&what));
    let (mut words, mut connecting) = (Vec::new(), Connecting::new());
    let (mut from, mut to, mut slots) = (None, None, None);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            "--from" => from = Some(value()?),
            "--to" => to = Some(value()?),
            "--slots" => {
                let text = value()?;
                let count = text.parse().map_err(|_| wrong(&format!("'{text}' is no number of slots")))?;
                slots = Some(count);
            }
            flag if connecting.take(flag, &mut value)? => {}
            word if !word.starts_with('-') => words.push(word),
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    let (task, address) = match (&words[..], from, to) {
        (["create", addresses @ ..], None, None) => {
            let addresses: Vec<Address> =
                addresses.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
            let addresses = addresses.into_iter().map(|address| connecting.address(address));
            (Task::Create(addresses.collect()), default_address())
        }
        (["status", address], None, None) => (Task::Status, parse(address)?),
        (["add", address, new], None, None) => (Task::Add(connecting.address(parse(new)?)), parse(address)?),
        (["remove", address, node], None, None) => (Task::Remove(node.to_string()), parse(address)?),
        (["move", address], Some(from), Some(to)) => (Task::Move { from, to, count: slots }, parse(address)?),
        (["balance", address], None, None) => (Task::Balance, parse(address)?),
        _ => return Err(wrong("the cluster is to be told what")),
    };
    let address = connecting.address(address);
    let secure = connecting.is_secure.then_some(connecting.secure);
    Ok(Request::Cluster(cluster_admin::Request { task, address, login: connecting.login, secure }))
}

fn backup(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast backup --help"));
    let (mut from, mut dir, mut rate) = (None, None, None);
    let mut connecting = Connecting::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            "--from" => from = Some(value()?.parse().map_err(|what: String| wrong(&what))?),
            "--rate" => rate = Some(bytes_a_second(&value()?).map_err(|what| wrong(&what))?),
            flag if connecting.take(flag, &mut value)? => {}
            path if dir.is_none() && !path.starts_with('-') => dir = Some(PathBuf::from(path)),
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    match (from, dir) {
        (Some(from), Some(dir)) => {
            let from = connecting.address(from);
            Ok(Request::Backup(BackupRequest { from, login: connecting.login, dir, rate }))
        }
        (None, _) => Err(wrong("backup needs --from, and the address of a server")),
        (_, None) => Err(wrong("backup needs a folder")),
    }
}

fn restore(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast restore --help"));
    let (paths, what) = match args {
        [paths @ .., "--backup", number] => {
            let number =
                number.parse().map_err(|_| wrong(&format!("'{number}' is no number of a backup")))?;
            (paths, Restored::Number(number))
        }
        [paths @ .., "--lsn", lsn] => {
            let lsn = lsn.parse().map_err(|_| wrong(&format!("'{lsn}' is no LSN")))?;
            (paths, Restored::Until(Until::Lsn(lsn)))
        }
        [paths @ .., "--time", time] => {
            let time_ms = parse_time(time).ok_or_else(|| {
                wrong(&format!(
                    "'{time}' is no time such as 2026-03-01T11:59:30Z, and no Unix time in seconds"
                ))
            })?;
            (paths, Restored::Until(Until::TimeMs(time_ms)))
        }
        paths => (paths, Restored::Last),
    };
    match paths {
        [from, dir] if !from.starts_with('-') && !dir.starts_with('-') => {
            Ok(Request::Restore(RestoreRequest { from: from.into(), dir: dir.into(), what }))
        }
        _ => Err(wrong(
            "restore needs a folder of backups and a new folder, and at most one of --backup NUMBER, --lsn N and --time T",
        )),
    }
}

/// Unix time in milliseconds of a time of UTC, or of a Unix time in seconds.
fn parse_time(text: &str) -> Option<u64> {
    let seconds = text.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(1000));
    seconds.or_else(|| u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok())
}

fn export(args: &[&str]) -> Result<Request, ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("{what}; see holdfast export --help"));
    let (mut address, mut paths, mut version, mut rate) = (None, Vec::new(), None, None);
    let mut connecting = Connecting::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || {
            rest.next().map(|value| value.to_string()).ok_or_else(|| wrong(&format!("{arg} needs a value")))
        };
        match *arg {
            "--from" => address = Some(value()?.parse().map_err(|what: String| wrong(&what))?),
            "--rate" => rate = Some(bytes_a_second(&value()?).map_err(|what| wrong(&what))?),
            flag if connecting.take(flag, &mut value)? => {}
            "--rdb-version" => {
                let known = value()?.parse().ok().filter(|version| (10..=12).contains(version));
                version = Some(known.ok_or_else(|| wrong("--rdb-version is 10, 11 or 12"))?);
            }
            path if !path.starts_with('-') => paths.push(PathBuf::from(path)),
            _ => return Err(wrong(&format!("unexpected argument '{arg}'"))),
        }
    }
    let (from, file) = match (address, <[PathBuf; 2]>::try_from(paths)) {
        (None, Ok([dir, file])) => (export::Origin::Folder(dir), file),
        (Some(address), Err(paths)) if paths.len() == 1 => {
            let (address, login) = (connecting.address(address), connecting.login);
            (export::Origin::Server { address, login, rate }, paths.into_iter().next().expect("one"))
        }
        _ => {
            return Err(wrong(
                "export needs a data folder, or --from and the address of a server, and a new file",
            ));
        }
    };
    Ok(Request::Export(export::Request { from, file, version }))
}

/// A number of bytes that are copied in a second.
fn bytes_a_second(text: &str) -> Result<u64, String> {
    let bytes = parse_memory(text).and_then(|bytes| u64::try_from(bytes).ok());
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| format!("'{text}' is no number of bytes"))
}

fn serve_help() -> String {
    let mut text = usage::find("serve").expect("it is in the table").usage();
    text.push_str("\nOptions:\n");
    for &opt in Opt::ALL {
        let spec = opt.spec();
        if !spec.change.has_effect() {
            continue;
        }
        let default = if spec.default.is_empty() { "\"\"" } else { spec.default };
        writeln!(text, "  --{} <{}>\n        {} [{default}]", spec.name, spec.kind.describe(), spec.doc)
            .expect("writing to a string cannot fail");
    }
    text.push_str("\nAccepted for compatibility with Redis, without effect:\n ");
    let mut column = 1;
    for spec in Opt::ALL.iter().map(|opt| opt.spec()).filter(|spec| !spec.change.has_effect()) {
        if column + spec.name.len() > 100 {
            text.push_str("\n ");
            column = 1;
        }
        text.push(' ');
        text.push_str(spec.name);
        column += spec.name.len() + 1;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(args: &[&str]) -> Result<Box<Config>, String> {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        match parse(&args).map_err(|e| e.to_string())? {
            Request::Serve(config) => Ok(config),
            _ => Err("not serve".into()),
        }
    }

    #[test]
    fn options_take_any_number_of_values() {
        let args = ["serve", "--port", "7000", "--bind", "127.0.0.1", "-::1", "--save", "", "--timeout=5"];
        let config = served(&args).unwrap();
        assert_eq!(config.number(Opt::Port), 7000);
        assert_eq!(config.text(Opt::Bind), "127.0.0.1 -::1");
        assert_eq!(config.number(Opt::Timeout), 5);
        assert_eq!(served(&[]).unwrap().number(Opt::Port), 6379);
        assert_eq!(
            served(&["--slowlog-log-slower-than", "-1"]).unwrap().number(Opt::SlowlogLogSlowerThan),
            -1
        );
    }

    /// Each `dir` of one file, or of the command line, is one more folder; the command line replaces what the file says.
    #[test]
    fn dir_names_more_folders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("holdfast.conf");
        let file = file.to_str().unwrap();
        std::fs::write(file, "dir /a\nport 0\nDIR \"/b c\"\n").unwrap();
        let dirs = |args: &[&str]| {
            let config = served(args).unwrap();
            let more = config.more_dirs().into_iter().map(|dir| dir.display().to_string());
            [config.text(Opt::Dir)].into_iter().chain(more).collect::<Vec<_>>()
        };
        assert_eq!(dirs(&[file]), ["/a", "/b c"]);
        assert_eq!(dirs(&[file, "--port", "1"]), ["/a", "/b c"]);
        assert_eq!(dirs(&[file, "--dir", "/d"]), ["/d"]);
        assert_eq!(dirs(&["--dir", "/d", "--dir=/e", "--dir", "/f"]), ["/d", "/e", "/f"]);
        assert_eq!(dirs(&[]), ["holdfast-data"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (args, error) in [
            (["--prot", "1"], "unknown option 'prot'; did you mean 'port'?"),
            (["--port", "x"], "option 'port': argument couldn't be parsed into an integer"),
            (["--port", "--bind"], "option 'port' needs a value"),
            (
                ["/nonexistent/file", "--x"],
                "cannot read the configuration file /nonexistent/file: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(served(&args).err().as_deref(), Some(error));
        }
    }

    #[test]
    fn help_names_every_option() {
        let Ok(Request::Print(text)) = parse(&["serve".into(), "--help".into()]) else {
            panic!("help is printed")
        };
        for &opt in Opt::ALL {
            assert!(text.contains(opt.spec().name), "{}", opt.spec().name);
        }
    }
}
