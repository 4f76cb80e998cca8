//! Calls of the commands that write, made from the lines of `calls.txt`.

use std::time::{SystemTime, UNIX_EPOCH};

/// One line of `calls.txt`.
pub struct Template(Vec<&'static str>);

impl Template {
    /// All of them.
    pub fn all() -> Vec<Template> {
        let lines = include_str!("calls.txt").lines();
        let calls = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        calls.map(Template::new).collect()
    }

    /// One that is written like the lines of `calls.txt`.
    pub fn new(line: &'static str) -> Template {
        Template(line.split(' ').collect())
    }

    /// Whether it is a call of a command, `set` or `xgroup|create`.
    pub fn is_of(&self, command: &str) -> bool {
        let mut words = self.0.iter();
        command.split('|').all(|name| words.next() == Some(&name))
    }

    /// A call; `below` draws numbers below its argument. `port` is that of another server.
    pub fn fill(&self, port: u16, below: &mut dyn FnMut(u64) -> u64) -> Vec<Vec<u8>> {
        self.0.iter().map(|word| unescape(&fill(word, port, below))).collect()
    }
}

/// Puts something in the places that `calls.txt` explains.
fn fill(word: &str, port: u16, below: &mut dyn FnMut(u64) -> u64) -> String {
    let mut filled = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let place = chars.peek().copied().filter(|next| c == '$' && next.is_ascii_alphabetic());
        let Some(place) = place else {
            filled.push(c);
            continue;
        };
        chars.next();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        let kinds = ['s', 'l', 'h', 'e', 'z', 'x', 'p', 'b', 'g'];
        filled += &match place {
            'k' => format!("{}:{}", kinds[below(kinds.len() as u64) as usize], below(3)),
            'v' => "v".repeat(1 + below(300) as usize),
            'm' => char::from(b'a' + below(8) as u8).to_string(),
            'n' => (1 + below(20)).to_string(),
            'f' => format!("{}.25", below(100)),
            't' => (now_ms + 10_000_000 + below(1000)).to_string(),
            'P' => port.to_string(),
            'T' => (now_ms / 1000 + 10_000 + below(1000)).to_string(),
            kind if kinds.contains(&kind) => format!("{kind}:{}", below(3)),
            other => panic!("calls.txt does not explain ${other}"),
        };
    }
    filled
}

/// `\xNN` and `\n`.
fn unescape(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = match escaped.strip_prefix('x') {
            Some(hex) => {
                bytes.push(u8::from_str_radix(&hex[..2], 16).expect("two digits"));
                &hex[2..]
            }
            None => {
                bytes.push(b'\n');
                escaped.strip_prefix('n').expect("\\x or \\n")
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}
