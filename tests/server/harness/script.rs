//! Commands with the replies that they must have, in short.

use super::Client;
use holdfast_resp::Reply;

impl Client {
    /// Sends each line's command and compares the reply with what is behind ` => `; see [`show`].
    pub fn run_script(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (command, expected) = line.split_once(" => ").expect("a command and its reply");
            assert_eq!(show(&self.call(command)), expected, "{command}");
        }
    }
}

/// A reply in short: `+OK`, `-ERR …`, `:1`, `text`, `nil`, `[a b]`, `{a b, c d}` for a map, `<a b>` for a set.
pub fn show(reply: &Reply) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = |items: &[Reply]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Simple(bytes) => format!("+{}", text(bytes)),
        Reply::Error(bytes) => format!("-{}", text(bytes)),
        Reply::Int(value) => format!(":{value}"),
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => text(bytes),
        Reply::Null => "nil".into(),
        Reply::Bool(value) => format!("#{value}"),
        Reply::Double(value) => format!(",{value}"),
        Reply::BigNumber(digits) => format!("({}", text(digits)),
        Reply::Array(items) => format!("[{}]", all(items)),
        Reply::Set(items) => format!("<{}>", all(items)),
        Reply::Push(items) => format!(">[{}]", all(items)),
        Reply::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{} {}", show(key), show(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}
