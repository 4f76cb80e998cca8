//! What a handler is given.

use crate::{
    answer::{ErrorReply, NOT_INTEGER, Wake},
    command::Command,
    dispatch::Turn,
    server::Server,
    session::Session,
};
use holdfast_resp::{Args, Proto, Writer, parse_int};

/// One execution of a command.
pub struct Call<'a> {
    /// Its row.
    pub command: &'static Command,
    /// Its arguments, the name first.
    pub args: Args<'a>,
    /// Where its reply goes.
    pub out: Writer<'a>,
    /// The connection's state.
    pub session: &'a mut Session,
    /// The loop turn that it is part of.
    pub turn: &'a Turn<'a>,
    /// Why it runs, if it has waited.
    pub wake: Wake,
}

impl Call<'_> {
    /// The server.
    pub fn server(&self) -> &Server {
        &self.turn.worker.server
    }

    /// An argument as an integer.
    pub fn int(&self, index: usize) -> Result<i64, ErrorReply> {
        parse_int(self.args.at(index)).ok_or(NOT_INTEGER)
    }

    /// Whether argument `index` is `word`, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Changes the protocol of this reply and all later ones.
    pub fn set_proto(&mut self, proto: Proto) {
        self.session.proto = proto;
        self.out.set_proto(proto);
    }

    /// The error of a container that lacks the subcommand asked for.
    pub fn unknown_subcommand(&self) -> ErrorReply {
        unknown_subcommand(self.command, self.args)
    }

    /// Writes the lines of a HELP subcommand between Redis's usual first and last ones.
    pub fn help(&mut self, lines: &[&str]) {
        let container = self.args.at(0).to_ascii_uppercase();
        let title = [&container[..], b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"].concat();
        self.out.array(lines.len() + 3);
        self.out.simple(&String::from_utf8_lossy(&title));
        for line in lines {
            self.out.simple(line);
        }
        self.out.simple("HELP");
        self.out.simple("    Print this help.");
    }
}

/// `-ERR unknown subcommand …`
pub fn unknown_subcommand(container: &Command, args: Args) -> ErrorReply {
    let name = args.get(1).unwrap_or_default();
    let shown = &name[..name.len().min(128)];
    let upper = container.name.to_ascii_uppercase();
    [b"ERR unknown subcommand '", shown, b"'. Try ", upper.as_bytes(), b" HELP."].concat().into()
}

/// `-ERR wrong number of arguments …`
pub fn wrong_arity(command: &Command) -> ErrorReply {
    format!("ERR wrong number of arguments for '{}' command", command.name).into()
}
