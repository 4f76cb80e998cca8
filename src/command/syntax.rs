//! The arguments of a command as its row writes them, for COMMAND DOCS, from which `redis-cli` makes its hints.
//!
//! `name` is a string, `name:i` an integer, `:d` a double, `:t` a Unix time, `:p` a pattern and `:k` a key, of the first key
//! specification or the one whose number follows; `key` is a key by its name, unless it is `:s`. A word in capitals is a token by
//! itself, or else written as `TOKEN=name`, or `TOKEN=name:!` if it has another name; signs are in quotes. `name(a b)` is a block and `name<a|b>` a
//! choice. `[…]` may be left out, `…...` be there several times, `…+...` with its token each time. `@1.2.3` is the version
//! that an argument is there since, `~text` what is shown in place of its name.

/// An argument.
#[derive(Debug, PartialEq, Eq)]
pub struct Argument<'s> {
    /// What it is called.
    pub name: String,
    /// What is expected.
    pub kind: Kind,
    /// The word before it, or which it is.
    pub token: Option<&'s str>,
    /// The number of the key specification that finds it.
    pub key_spec: Option<u8>,
    /// What is shown in place of its name.
    pub display: Option<&'s str>,
    /// The version that has it first, if the command is older.
    pub since: Option<&'s str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be there several times.
    pub is_multiple: bool,
    /// Whether the token is repeated then.
    pub repeats_token: bool,
    /// Of a block or choice: what is in it.
    pub parts: Vec<Argument<'s>>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any bytes.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Double,
    /// The name of a key.
    Key,
    /// A glob-like pattern.
    Pattern,
    /// Seconds or milliseconds since 1970.
    UnixTime,
    /// The token itself.
    PureToken,
    /// One of its parts.
    OneOf,
    /// All of its parts.
    Block,
}

impl Kind {
    /// As COMMAND DOCS calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }
}

/// The arguments that a row names. Panics if they are not written as they should be: a test looks at all rows.
pub fn parse(text: &str) -> Vec<Argument<'_>> {
    let mut reader = Reader { rest: text };
    let arguments = reader.separated(' ');
    assert!(reader.rest.is_empty(), "{text}: {} is left", reader.rest);
    arguments
}

/// The arity of a command with this name: how many words a call has, or, negative, has at least. [`parse`] says the same at
/// more length, which a constant cannot call.
pub const fn arity(name: &str, syntax: &str) -> i32 {
    let mut least = 1;
    let mut at = 0;
    while at < name.len() {
        least += (name.as_bytes()[at] == b'|') as i32;
        at += 1;
    }
    if syntax.is_empty() {
        return least;
    }
    let words = Words::of_list(syntax.as_bytes(), 0);
    least += words.least;
    if words.is_open { -least } else { least }
}

/// What a part of a syntax says of a call's length.
struct Words {
    /// How many words it has at least.
    least: i32,
    /// Whether it may have more.
    is_open: bool,
    /// Where the part ends.
    end: usize,
}

impl Words {
    /// Arguments one after another, from this place on.
    const fn of_list(text: &[u8], at: usize) -> Words {
        let mut all = Words::of_argument(text, at);
        while all.end < text.len() && text[all.end] == b' ' {
            let next = Words::of_argument(text, all.end + 1);
            all = Words { least: all.least + next.least, is_open: all.is_open | next.is_open, end: next.end };
        }
        all
    }

    /// Arguments of which one is there, even if each by itself may be left out.
    const fn of_choice(text: &[u8], at: usize) -> Words {
        let mut all = Words::of_argument(text, at);
        while text[all.end] == b'|' {
            let next = Words::of_argument(text, all.end + 1);
            let is_open = all.is_open | next.is_open | (all.least != next.least);
            let least = if next.least < all.least { next.least } else { all.least };
            all = Words { least, is_open, end: next.end };
        }
        Words { least: if all.least == 0 { 1 } else { all.least }, ..all }
    }

    const fn of_argument(text: &[u8], start: usize) -> Words {
        let (mut words, mut at) = (Words { least: 1, is_open: false, end: 0 }, start);
        while at < text.len() {
            match text[at] {
                b'[' if at == start => {
                    let inner = Words::of_argument(text, at + 1);
                    return Words { least: 0, is_open: true, end: inner.end + 1 };
                }
                b'"' => {
                    at += 1;
                    while text[at] != b'"' {
                        at += 1;
                    }
                }
                b'=' => words.least += 1,
                b'!' => words.least -= 1,
                open @ (b'(' | b'<') => {
                    let is_block = open == b'(';
                    let parts =
                        if is_block { Words::of_list(text, at + 1) } else { Words::of_choice(text, at + 1) };
                    words.least += parts.least - 1;
                    words.is_open |= parts.is_open;
                    at = parts.end;
                }
                b'.' if text[at + 1] == b'.' => {
                    words.is_open = true;
                    at += 2;
                }
                b' ' | b'|' | b')' | b'>' | b']' => break,
                _ => {}
            }
            at += 1;
        }
        Words { end: at, ..words }
    }
}

struct Reader<'s> {
    rest: &'s str,
}

impl<'s> Reader<'s> {
    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &str) {
        assert!(self.eat(text), "{text} is missing before {:?}", self.rest);
    }

    /// What comes before one of these characters.
    fn until(&mut self, ends: &[char]) -> &'s str {
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn separated(&mut self, separator: char) -> Vec<Argument<'s>> {
        let mut arguments = Vec::new();
        if !self.rest.is_empty() {
            arguments.push(self.argument());
            while self.eat(separator.encode_utf8(&mut [0; 4])) {
                arguments.push(self.argument());
            }
        }
        arguments
    }

    fn argument(&mut self) -> Argument<'s> {
        if self.eat("[") {
            let argument = Argument { is_optional: true, ..self.argument() };
            self.expect("]");
            return argument;
        }
        const ENDS: &[char] = &[' ', '=', ':', '~', '@', '(', ')', '<', '>', '|', '+', '.', ']'];
        let is_quoted = self.eat("\"");
        let word = if is_quoted { self.until(&['"']) } else { self.until(ENDS) };
        if is_quoted {
            self.expect("\"");
        }
        let (token, name) = if self.eat("=") { (Some(word), self.until(ENDS)) } else { (None, word) };
        let is_token = token.is_none() && name.starts_with(|c: char| c.is_ascii_uppercase());
        let (kind, key_spec) = match self.kind() {
            Some(given) => given,
            None if is_token => (Kind::PureToken, None),
            None if name == "key" => (Kind::Key, Some(0)),
            None => (Kind::String, None),
        };
        let display = self.eat("~").then(|| self.until(&[' ', '@', ')', '>', '|', '+', '.', ']']));
        let since = self.eat("@").then(|| self.version());
        let (kind, parts) = if self.eat("(") {
            let parts = self.separated(' ');
            self.expect(")");
            (Kind::Block, parts)
        } else if self.eat("<") {
            let parts = self.separated('|');
            self.expect(">");
            (Kind::OneOf, parts)
        } else {
            (kind, Vec::new())
        };
        Argument {
            name: if is_token { name.to_ascii_lowercase() } else { name.to_owned() },
            kind,
            token: if is_token { Some(name) } else { token },
            key_spec,
            display,
            since,
            is_optional: false,
            repeats_token: self.eat("+"),
            is_multiple: self.eat("..."),
            parts,
        }
    }

    fn kind(&mut self) -> Option<(Kind, Option<u8>)> {
        if !self.eat(":") {
            return None;
        }
        let (letter, rest) = self.rest.split_at(1);
        self.rest = rest;
        let kind = match letter {
            "s" => Kind::String,
            "i" => Kind::Integer,
            "d" => Kind::Double,
            "k" => Kind::Key,
            "p" => Kind::Pattern,
            "t" => Kind::UnixTime,
            "!" => Kind::PureToken,
            other => panic!("no type is called {other}"),
        };
        let digit = self.rest.starts_with(|c: char| c.is_ascii_digit());
        let number = digit.then(|| {
            let (number, rest) = self.rest.split_at(1);
            self.rest = rest;
            number.parse().expect("a digit")
        });
        Some((kind, number.or((kind == Kind::Key).then_some(0))))
    }

    /// Three numbers with dots between; more dots are of what follows.
    fn version(&mut self) -> &'s str {
        let is_part = |&(at, c): &(usize, char)| {
            c.is_ascii_digit()
                || c == '.' && self.rest[at + 1..].starts_with(|next: char| next.is_ascii_digit())
        };
        let len = self.rest.char_indices().take_while(is_part).count();
        let (version, rest) = self.rest.split_at(len);
        self.rest = rest;
        version
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::ROWS;

    fn string(name: &str) -> Argument<'_> {
        Argument {
            name: name.to_owned(),
            kind: Kind::String,
            token: None,
            key_spec: None,
            display: None,
            since: None,
            is_optional: false,
            is_multiple: false,
            repeats_token: false,
            parts: Vec::new(),
        }
    }

    fn token<'s>(token: &'s str, name: &'s str) -> Argument<'s> {
        Argument { kind: Kind::PureToken, token: Some(token), ..string(name) }
    }

    #[test]
    fn all_that_can_be_written() {
        assert_eq!(parse(""), []);
        assert_eq!(
            parse("key dst:k1 value@1.2.3... [LIMIT=limit(offset:i count:i)]"),
            [
                Argument { kind: Kind::Key, key_spec: Some(0), ..string("key") },
                Argument { kind: Kind::Key, key_spec: Some(1), ..string("dst") },
                Argument { since: Some("1.2.3"), is_multiple: true, ..string("value") },
                Argument {
                    kind: Kind::Block,
                    token: Some("LIMIT"),
                    is_optional: true,
                    parts: ["offset", "count"]
                        .map(|name| Argument { kind: Kind::Integer, ..string(name) })
                        .into(),
                    ..string("limit")
                },
            ]
        );
        assert_eq!(
            parse("a<NX@6.2.0|\"=\"=equal:!|M> [GET=get:p1~pattern+...] key:s"),
            [
                Argument {
                    kind: Kind::OneOf,
                    parts: vec![
                        Argument { since: Some("6.2.0"), ..token("NX", "nx") },
                        Argument { ..token("=", "equal") },
                        token("M", "m"),
                    ],
                    ..string("a")
                },
                Argument {
                    kind: Kind::Pattern,
                    token: Some("GET"),
                    key_spec: Some(1),
                    display: Some("pattern"),
                    is_optional: true,
                    is_multiple: true,
                    repeats_token: true,
                    ..string("get")
                },
                string("key"),
            ]
        );
    }

    /// How many words a call has at least for these arguments, and whether it may have more.
    fn words(arguments: &[Argument]) -> (usize, bool) {
        let each = arguments.iter().map(|argument| {
            let parts = argument.parts.iter().map(|part| words(std::slice::from_ref(part)));
            let (least, open) = match argument.kind {
                Kind::Block => words(&argument.parts),
                Kind::OneOf => {
                    let least = parts.clone().map(|(least, _)| least.max(1)).min().expect("a choice");
                    (least, parts.clone().any(|(of_part, open)| open || of_part != least))
                }
                _ => (1, false),
            };
            let own = usize::from(argument.token.is_some() && argument.kind != Kind::PureToken);
            let is_open = open || argument.is_multiple || argument.is_optional;
            (if argument.is_optional { 0 } else { own + least }, is_open)
        });
        each.fold((0, false), |(sum, any), (least, open)| (sum + least, any || open))
    }

    #[test]
    fn rows_have_as_many_arguments_as_their_arity_says() {
        for (id, command) in ROWS.table.all() {
            let (name, syntax) = (command.name, command.syntax);
            if ROWS.table.is_container(id) {
                assert_eq!(syntax, "", "{name}");
                continue;
            }
            let (least, is_open) = words(&parse(syntax));
            let least = (1 + usize::from(name.contains('|')) + least) as i32;
            assert_eq!(arity(name, syntax), if is_open { -least } else { least }, "{name}: {syntax}");
            assert_eq!(command.arity.abs(), least, "{name}: {syntax}");
            // A few take more than they know.
            assert!(command.arity < 0 || !is_open, "{name}: {syntax}");
        }
    }
}
