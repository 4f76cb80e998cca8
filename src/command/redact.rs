//! Which arguments are secret: they are not shown by SLOWLOG and MONITOR.

use crate::{
    command::Command,
    config::{Opt, kind::Kind},
};
use holdfast_resp::Args;

/// What is shown instead.
pub const REDACTED: &[u8] = b"(redacted)";

/// Whether argument `index` of a call is secret.
pub fn is_secret(command: &Command, args: Args, index: usize) -> bool {
    let is =
        |at: usize, word: &str| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    match command.name {
        "auth" => index >= 1,
        // A name and a password follow the word.
        "hello" => index >= 3 && (is(index - 1, "auth") || index >= 4 && is(index - 2, "auth")),
        "acl|setuser" | "acl|deluser" | "acl|getuser" => index >= 2,
        "config|set" => index >= 3 && index % 2 == 1 && is_secret_option(args.at(index - 1)),
        "migrate" => {
            index >= 6 && (is(index - 1, "auth") || is(index - 1, "auth2") || is(index - 2, "auth2"))
        }
        _ => false,
    }
}

fn is_secret_option(name: &[u8]) -> bool {
    let opt = std::str::from_utf8(name).ok().and_then(Opt::find);
    opt.is_some_and(|opt| matches!(opt.spec().kind, Kind::Secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command::table::Lookup, commands::ROWS};
    use holdfast_resp::OwnedArgs;

    #[test]
    fn secrets() {
        for (call, shown) in [
            ("auth u p", "auth * *"),
            ("hello 3 setname n auth u p setname m", "hello 3 setname n auth * * setname m"),
            ("acl setuser u >p on", "acl setuser * * *"),
            ("acl getuser u", "acl getuser *"),
            ("acl whoami", "acl whoami"),
            ("config set port 1 requirepass p", "config set port 1 requirepass *"),
            ("config get requirepass", "config get requirepass"),
            ("set auth auth", "set auth auth"),
        ] {
            let args: OwnedArgs = call.split(' ').collect();
            let args = args.args();
            let Lookup::Found(id) = ROWS.table.lookup(args) else { panic!("{call}") };
            let show = |(index, arg)| {
                if is_secret(ROWS.table.command(id), args, index) {
                    "*"
                } else {
                    std::str::from_utf8(arg).unwrap()
                }
            };
            assert_eq!(args.iter().enumerate().map(show).collect::<Vec<_>>().join(" "), shown);
        }
    }
}
