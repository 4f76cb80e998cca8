//! The command line: `holdfast [serve] [FILE] [--option value …]` and `holdfast check DIR`.

use crate::{
    config::{
        Config, Opt,
        file::{self, ConfigError},
        options::edit_distance,
    },
    document,
    util::version::VERSION,
};
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
    /// Print this and exit.
    Print(String),
}

const USAGE: &str = "\
Holdfast: a Redis-compatible store that never loses an acknowledged write

Usage:
  holdfast [serve] [FILE] [--OPTION VALUE …]   serve clients, with the options of FILE (-: standard input), as redis-server does
  holdfast check DIR                           verify a data folder that is not in use; changes nothing
  holdfast serve --help                        list the options
  holdfast commands                            list the commands, in Markdown
  holdfast --version                           print the version

Without arguments it serves on port 6379, with its data in ./holdfast-data, or in the current folder if that is a data
folder already.
";

/// Understands the arguments after the program's name.
pub fn parse(args: &[String]) -> Result<Request, ConfigError> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let is_help = |arg: &&str| matches!(*arg, "--help" | "-h");
    match args.as_slice() {
        ["commands"] => Ok(Request::Print(document::commands())),
        ["check", rest @ ..] => match rest {
            [arg] if is_help(arg) => Ok(Request::Print(USAGE.into())),
            [dir] if !dir.starts_with('-') => Ok(Request::Check(PathBuf::from(dir))),
            _ => Err(ConfigError::new(
                "check needs the data folder, and nothing else: holdfast check DIR".into(),
            )),
        },
        ["help" | "--help" | "-h", ..] => Ok(Request::Print(USAGE.into())),
        ["--version" | "-v", ..] => Ok(Request::Print(format!("holdfast {VERSION}\n"))),
        ["serve", rest @ ..] if rest.iter().any(is_help) => Ok(Request::Print(serve_help())),
        ["serve", rest @ ..] => serve(rest),
        [word, ..] if is_mistaken_command(word) => {
            let hint = COMMANDS.iter().find(|command| edit_distance(word, command) <= 2);
            let hint =
                hint.map(|command| format!("; did you mean 'holdfast {command}'?")).unwrap_or_default();
            let what = format!("'{word}' is neither a command nor a configuration file that is there{hint}");
            Err(ConfigError::new(format!("{what}\nSee holdfast --help.")))
        }
        rest => serve(rest),
    }
}

const COMMANDS: [&str; 4] = ["serve", "check", "commands", "help"];

/// Whether the first argument is more likely a command that does not exist than a configuration file that is missing: it is
/// one plain word.
fn is_mistaken_command(word: &str) -> bool {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_plain && !Path::new(word).exists()
}

fn serve(args: &[&str]) -> Result<Request, ConfigError> {
    let mut config = Config::default();
    let mut rest = args;
    if let [path, after @ ..] = args {
        if !path.starts_with("--") {
            file::read(&config, path.as_ref())?;
            // An absolute path, so that CONFIG REWRITE finds it.
            config.path = std::path::absolute(path).ok().filter(|_| *path != "-");
            rest = after;
        }
    }
    while let [flag, after @ ..] = rest {
        let Some(name) = flag.strip_prefix("--") else {
            return Err(ConfigError::new(format!("unexpected argument '{flag}'; see holdfast --help")));
        };
        if let Some((name, value)) = name.split_once('=') {
            file::set(&config, name, &[value])?;
            rest = after;
        } else {
            let values = after.iter().take_while(|arg| !arg.starts_with("--")).count();
            file::set(&config, name, &after[..values])?;
            rest = &after[values..];
        }
    }
    Ok(Request::Serve(Box::new(config)))
}

fn serve_help() -> String {
    let mut text = String::from(
        "Usage: holdfast [serve] [FILE] [--OPTION VALUE …]\n\n\
         Options, each as --OPTION VALUE or as a line OPTION VALUE of FILE:\n",
    );
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
