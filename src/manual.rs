//! What is made of the table of options and of that of the program's commands: `holdfast config`, `man` and `completions`, whose output
//! lies in `deploy/`.

use crate::{
    config::{
        Opt,
        kind::Kind,
        options::{Change, Spec},
    },
    usage::{self, SUBCOMMANDS, Subcommand},
};
use std::fmt::Write;

/// Columns of a line of the configuration file.
const WIDTH: usize = 110;
const STRING: &str = "writing to a string cannot fail";

/// Where the sections of the table begin, and their titles.
const SECTIONS: [(Opt, &str); 8] = [
    (Opt::Bind, "Network"),
    (Opt::TlsPort, "TLS"),
    (Opt::Dir, "General"),
    (Opt::Appendfsync, "Durability and memory"),
    (Opt::MasterAuth, "Replication and cluster"),
    (Opt::NotifyKeyspaceEvents, "Publish/subscribe"),
    (Opt::HashMaxListpackEntries, "Small encodings"),
    (Opt::ScriptMaxMemory, "Scripts and watching"),
];

fn effective() -> impl Iterator<Item = (Opt, &'static Spec)> {
    Opt::ALL.iter().map(|&opt| (opt, opt.spec())).filter(|(_, spec)| spec.change.has_effect())
}

/// The default as a line of the file has it.
fn default_value(spec: &Spec) -> &'static str {
    if spec.default.is_empty() { "\"\"" } else { spec.default }
}

/// A configuration file that changes nothing: all options with their defaults, as comments.
pub fn config_file() -> String {
    let mut text = String::new();
    let paragraph = |text: &mut String, words: &str| {
        let mut line = "#".to_owned();
        for word in words.split(' ') {
            if line.len() + 1 + word.len() > WIDTH {
                writeln!(text, "{line}").expect(STRING);
                line = "#".to_owned();
            }
            write!(line, " {word}").expect(STRING);
        }
        writeln!(text, "{line}").expect(STRING);
    };
    paragraph(
        &mut text,
        "Options of Holdfast, for holdfast serve FILE. Each is here with its default: remove the # before it, and change the value. The \
         syntax is that of Redis: an option and its value in a line; a value with blanks in it is quoted; include FILE reads another \
         file. Bytes may be written as 512mb or 4gb. What is said to be changed at any time is changed by CONFIG SET as well, and written \
         here by CONFIG REWRITE.",
    );
    for (opt, spec) in effective() {
        if let Some((_, title)) = SECTIONS.iter().find(|(first, _)| *first == opt) {
            writeln!(text, "\n## {title}").expect(STRING);
        }
        text.push('\n');
        paragraph(&mut text, &format!("{}.", spec.doc));
        paragraph(&mut text, &facts(spec));
        writeln!(text, "#{} {}", spec.name, default_value(spec)).expect(STRING);
    }
    text.push_str("\n## Accepted as they are in files for Redis, without effect\n\n");
    for spec in Opt::ALL.iter().map(|opt| opt.spec()).filter(|spec| !spec.change.has_effect()) {
        paragraph(&mut text, &format!("{}: {}.", spec.name, spec.doc));
    }
    text
}

/// Which values an option takes, and when.
fn facts(spec: &Spec) -> String {
    let values = match spec.kind {
        Kind::Bool => "yes or no".to_owned(),
        Kind::Int { min, max } if max >= i64::from(i32::MAX) => format!("a number from {min} on"),
        Kind::Int { min, max } => format!("a number from {min} to {max}"),
        Kind::Memory { .. } => "bytes".to_owned(),
        Kind::Octal { .. } => "permissions, in octal digits".to_owned(),
        Kind::Choice(choices) => choices.join(", "),
        Kind::Text | Kind::Secret => "a text".to_owned(),
        Kind::Words | Kind::Custom(_) => "words".to_owned(),
    };
    let alias = spec.alias.map(|alias| format!("; also {alias}")).unwrap_or_default();
    let when = if spec.change == Change::Live { "changed at any time" } else { "read at start" };
    format!("({values}; {when}{alias})")
}

/// The page for `man`.
pub fn man_page() -> String {
    let mut text = String::from(".TH HOLDFAST 1\n.SH NAME\n");
    writeln!(text, "holdfast \\- {}\n.SH SYNOPSIS\n.nf", usage::ABOUT).expect(STRING);
    for line in SUBCOMMANDS.iter().flat_map(Subcommand::synopsis) {
        writeln!(text, "{}", roff(&line)).expect(STRING);
    }
    text.push_str(".fi\n.SH COMMANDS\n");
    for command in SUBCOMMANDS {
        writeln!(text, ".SS {}", command.name).expect(STRING);
        for (at, (call, about)) in command.calls.iter().enumerate() {
            let lead = if at == 0 { ".PP\n" } else { ".br\n" };
            writeln!(text, "{lead}{}: {}.", roff(call), roff(about)).expect(STRING);
        }
        for part in command.explanation().split("\n\n").map(str::trim).filter(|part| !part.is_empty()) {
            writeln!(text, ".PP\n{}", roff(part)).expect(STRING);
        }
    }
    text.push_str(".SH OPTIONS\nOf \\fBholdfast serve\\fR, each as \\fB\\-\\-OPTION VALUE\\fR or as a line of the file:\n");
    for (_, spec) in effective() {
        let (name, default) = (roff(spec.name), roff(default_value(spec)));
        let (doc, facts) = (roff(spec.doc), roff(&facts(spec)));
        writeln!(text, ".TP\n\\fB{name}\\fR {default}\n{doc}. {facts}").expect(STRING);
    }
    for (title, rest) in REST {
        writeln!(text, ".SH {title}\n{}", rest.trim()).expect(STRING);
    }
    text
}

/// The end of the page.
const REST: [(&str, &str); 5] = [
    (
        "ENVIRONMENT",
        ".TP\n\\fBHOLDFAST_PASSWORD\\fR\nThe password of commands that connect to a server.\n\
         .TP\n\\fBNOTIFY_SOCKET\\fR\nWhere the server tells a service manager that it serves, or ends.\n\
         .TP\n\\fBJOURNAL_STREAM\\fR\nBy it the server knows that its standard error is the journal, and writes priorities.",
    ),
    (
        "SIGNALS",
        ".TP\n\\fBSIGTERM\\fR, \\fBSIGINT\\fR\nThe server makes all durable and ends.\n\
         .TP\n\\fBSIGHUP\\fR\nThe server opens its log file and its certificates anew.\n\
         .TP\n\\fBSIGUSR2\\fR\nAnother process of the program, which may be a newer one, takes over the data, the sockets and the clients.",
    ),
    ("EXIT STATUS", "0 if all went well, 1 if it did not; the standard error says why."),
    (
        "FILES",
        ".TP\n\\fI/etc/holdfast/holdfast.conf\\fR\nThe options of the service.\n.TP\n\\fI/var/lib/holdfast\\fR\nIts data.",
    ),
    ("SEE ALSO", "\\fBredis\\-cli\\fR(1), \\fBredis\\-server\\fR(1)"),
];

/// A text as roff has it.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('…', "...");
    let lines = escaped.lines().map(|line| {
        let is_request = line.starts_with(['.', '\'']);
        if is_request { format!("\\&{line}") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Completions for bash.
pub fn bash_completions() -> String {
    let names: Vec<&str> = SUBCOMMANDS.iter().map(|command| command.name).collect();
    let options: Vec<String> = effective().map(|(_, spec)| format!("--{}", spec.name)).collect();
    let mut flags = String::new();
    for command in SUBCOMMANDS.iter().filter(|command| command.all_flags().next().is_some()) {
        let words: Vec<&str> = command.all_flags().map(|(flag, _)| flag).collect();
        let more = if command.name == "import" { " $options" } else { "" };
        writeln!(flags, "        {}) words=\"{}{more}\" ;;", command.name, words.join(" ")).expect(STRING);
    }
    let mut choices = String::new();
    for (_, spec) in effective() {
        let words = match spec.kind {
            Kind::Bool => "yes no".to_owned(),
            Kind::Choice(choices) => choices.join(" "),
            _ => continue,
        };
        writeln!(choices, "        --{}) values=\"{words}\" ;;", spec.name).expect(STRING);
    }
    format!(
        "# Completions of holdfast for bash, made by holdfast completions.
_holdfast() {{
    local current=\"${{COMP_WORDS[COMP_CWORD]}}\" command=\"${{COMP_WORDS[1]}}\" words values=\"\"
    local options=\"{options}\"
    case \"$command\" in
        serve | -*) words=\"$options\" ;;
{flags}        *) words=\"\" ;;
    esac
    case \"${{COMP_WORDS[COMP_CWORD - 1]}}\" in
{choices}    esac
    if [[ -n \"$values\" ]]; then
        COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))
    elif ((COMP_CWORD == 1)) && [[ \"$current\" != -* ]]; then
        COMPREPLY=($(compgen -W \"{names}\" -- \"$current\") $(compgen -f -- \"$current\"))
    elif [[ \"$current\" == -* ]]; then
        COMPREPLY=($(compgen -W \"$words --help\" -- \"$current\"))
    else
        COMPREPLY=($(compgen -f -- \"$current\"))
    fi
}}
complete -o filenames -F _holdfast holdfast
",
        options = options.join(" "),
        names = names.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, file};

    #[test]
    fn what_lies_in_deploy_is_current() {
        for (name, command, text) in [
            ("holdfast.conf", "config", config_file()),
            ("holdfast.1", "man", man_page()),
            ("holdfast.bash", "completions", bash_completions()),
        ] {
            let path = format!("{}/deploy/{name}", env!("CARGO_MANIFEST_DIR"));
            let found = std::fs::read_to_string(path).unwrap_or_default();
            assert!(found == text, "make deploy/{name} anew: cargo run -- {command} > deploy/{name}");
        }
    }

    #[test]
    fn the_configuration_file_has_each_option_with_its_default() {
        let text = config_file();
        let settings = text.lines().filter_map(|line| {
            line.strip_prefix('#').filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        });
        let settings: Vec<&str> = settings.collect();
        let config = Config::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("holdfast.conf");
        std::fs::write(&path, settings.join("\n")).unwrap();
        file::read(&config, &path).unwrap();
        for (opt, spec) in effective() {
            assert!(config.is_default(opt), "{}: {}", spec.name, config.show(opt));
            let named = |line: &&&str| line.split(' ').next() == Some(spec.name);
            assert_eq!(settings.iter().filter(named).count(), 1, "{}", spec.name);
        }
        assert_eq!(settings.len(), effective().count());
        for spec in Opt::ALL.iter().map(|opt| opt.spec()) {
            assert!(text.contains(spec.doc.split(' ').next().unwrap()), "{}", spec.name);
        }
        assert!(
            text.lines().all(|line| line.len() <= WIDTH || line.starts_with('#')),
            "lines that are too long"
        );
        assert_eq!(
            SECTIONS.iter().filter(|(_, title)| text.contains(&format!("\n## {title}\n"))).count(),
            SECTIONS.len()
        );
    }
}
