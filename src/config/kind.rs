//! The kinds of values that options have: how they are read, checked and shown.

use super::address::{parse_servers, show_servers};
use std::{fmt::Write, net::IpAddr};

/// Reads the words of a value and returns them in normal form. The second argument is the value so far.
pub type Normalize = fn(&[&str], &str) -> Result<String, String>;

/// Which values an option takes.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`.
    Bool,
    /// A decimal integer.
    Int {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// Bytes, with an optional unit: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` of 1024.
    Memory {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// An octal number.
    Octal {
        /// Largest value.
        max: i64,
    },
    /// One of these words; its index is the value.
    Choice(&'static [&'static str]),
    /// Any one word.
    Text,
    /// Any one word, never logged.
    Secret,
    /// Any number of words.
    Words,
    /// Words that a function checks.
    Custom(Normalize),
}

/// A value: a number, or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Kind::Bool`] to [`Kind::Choice`].
    Number(i64),
    /// Of the others.
    Text(String),
}

impl Kind {
    /// Reads a value from its words; `current` is the value so far. The error is worded as in Redis.
    pub fn parse(self, words: &[&str], current: &str) -> Result<Value, String> {
        let one = || match words {
            [word] => Ok(*word),
            _ => Err("wrong number of arguments".to_owned()),
        };
        match self {
            Kind::Bool => match one()? {
                word if word.eq_ignore_ascii_case("yes") => Ok(Value::Number(1)),
                word if word.eq_ignore_ascii_case("no") => Ok(Value::Number(0)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Int { min, max } => {
                let number =
                    one()?.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
                in_range(number, min, max)
            }
            Kind::Memory { min, max } => {
                let number = parse_memory(one()?).ok_or("argument must be a memory value")?;
                in_range(number, min, max)
            }
            Kind::Octal { max } => match i64::from_str_radix(one()?, 8) {
                Ok(number) if (0..=max).contains(&number) => Ok(Value::Number(number)),
                Ok(_) => Err(format!("argument must be between 0 and {max:o} inclusive")),
                Err(_) => Err("argument couldn't be parsed into an integer".into()),
            },
            Kind::Choice(choices) => {
                let word = one()?;
                let index = choices.iter().position(|choice| choice.eq_ignore_ascii_case(word));
                index.map(|index| Value::Number(index as i64)).ok_or_else(|| {
                    format!("argument(s) must be one of the following: {}", choices.join(", "))
                })
            }
            Kind::Text | Kind::Secret => Ok(Value::Text(one()?.to_owned())),
            Kind::Words => Ok(Value::Text(words.join(" "))),
            Kind::Custom(normalize) => normalize(words, current).map(Value::Text),
        }
    }

    /// Whether a value of several words may come as one word with spaces in it, as CONFIG SET sends it.
    pub fn takes_many_words(self) -> bool {
        matches!(self, Kind::Words | Kind::Custom(_))
    }

    /// A number of this kind as it is shown.
    pub fn show(self, number: i64) -> String {
        match self {
            Kind::Bool => if number != 0 { "yes" } else { "no" }.to_owned(),
            Kind::Choice(choices) => choices[number as usize].to_owned(),
            Kind::Octal { .. } => format!("{number:o}"),
            _ => number.to_string(),
        }
    }

    /// What the value looks like, for the documentation.
    pub fn describe(self) -> String {
        match self {
            Kind::Bool => "yes|no".into(),
            Kind::Int { .. } => "integer".into(),
            Kind::Memory { .. } => "bytes".into(),
            Kind::Octal { .. } => "octal".into(),
            Kind::Choice(choices) => choices.join("|"),
            Kind::Text | Kind::Secret => "text".into(),
            Kind::Words | Kind::Custom(_) => "words".into(),
        }
    }
}

fn in_range(number: i64, min: i64, max: i64) -> Result<Value, String> {
    if (min..=max).contains(&number) {
        Ok(Value::Number(number))
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

/// Reads a number of bytes such as `100mb`.
pub fn parse_memory(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

/// The classes of `client-output-buffer-limit`, in the order in which they are shown.
pub const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// A host's name; in Redis's words what is wrong with it.
pub fn hostname(words: &[&str], _current: &str) -> Result<String, String> {
    const HOSTNAME_MAX: usize = 255;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    match words {
        [name] if name.len() > HOSTNAME_MAX => Err("Hostnames must be less than 256 characters".into()),
        [name] if !name.bytes().all(is_allowed) => {
            Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into())
        }
        [name] => Ok((*name).to_owned()),
        _ => Err("wrong number of arguments".into()),
    }
}

/// An IP address, or nothing.
pub fn ip_address(words: &[&str], _current: &str) -> Result<String, String> {
    match words {
        [] | [""] => Ok(String::new()),
        [word] if word.parse::<IpAddr>().is_ok() => Ok((*word).to_owned()),
        [_] => Err("argument must be an IP address".into()),
        _ => Err("wrong number of arguments".into()),
    }
}

/// `class hard soft seconds`, any number of times; classes that are not named keep their limits.
pub fn output_buffer_limits(words: &[&str], current: &str) -> Result<String, String> {
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut limits = read_output_limits(current);
    for quad in words.chunks(4) {
        let class = if quad[0].eq_ignore_ascii_case("replica") { "slave" } else { quad[0] };
        let class = OUTPUT_CLASSES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(class))
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let bad = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let seconds = quad[3].parse().ok().filter(|seconds| *seconds >= 0).ok_or(bad)?;
        limits[class] = [parse_memory(quad[1]).ok_or(bad)?, parse_memory(quad[2]).ok_or(bad)?, seconds];
    }
    let mut text = String::new();
    for (class, [hard, soft, seconds]) in OUTPUT_CLASSES.iter().zip(limits) {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{class} {hard} {soft} {seconds}").expect("writing to a string cannot fail");
    }
    Ok(text)
}

/// The limits of each class: hard, soft, seconds. Classes that `text` does not name have none.
pub fn read_output_limits(text: &str) -> [[i64; 3]; 3] {
    let mut limits = [[0; 3]; 3];
    let words: Vec<&str> = text.split_whitespace().collect();
    for quad in words.chunks_exact(4) {
        if let Some(class) = OUTPUT_CLASSES.iter().position(|known| *known == quad[0]) {
            limits[class] = [1, 2, 3].map(|i| quad[i].parse().unwrap_or(0));
        }
    }
    limits
}

/// A server to replicate, by its host and port; `no one`: none.
pub fn primary(words: &[&str], _current: &str) -> Result<String, String> {
    match words {
        [""] | ["no", "one"] => Ok(String::new()),
        [host, port] if !host.is_empty() => match port.parse::<u16>() {
            Ok(port) => Ok(format!("{host} {port}")),
            Err(_) => Err("Invalid master port".into()),
        },
        _ => Err("wrong number of arguments".into()),
    }
}

/// The servers of a replica set ([`parse_servers`]); none: the server is on its own.
pub fn replica_set(words: &[&str], _current: &str) -> Result<String, String> {
    let words = words.iter().flat_map(|word| word.split([',', ' '])).filter(|word| !word.is_empty());
    parse_servers(words).map(|servers| show_servers(&servers))
}

/// Bytes, or a percentage of `maxmemory`.
pub fn bytes_or_percent(words: &[&str], _current: &str) -> Result<String, String> {
    let [word] = words else { return Err("wrong number of arguments".into()) };
    if let Some(percent) = word.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent: &u8| (1..=100).contains(percent));
        return percent
            .map(|percent| format!("{percent}%"))
            .ok_or_else(|| "percentage argument must be less or equal to 100".into());
    }
    let bytes = parse_memory(word).ok_or("argument must be a memory or percent value")?;
    Ok(bytes.to_string())
}

/// Pairs of seconds and changes, or nothing.
pub fn save_points(words: &[&str], _current: &str) -> Result<String, String> {
    if matches!(words, [""]) {
        return Ok(String::new());
    }
    let valid = words.len().is_multiple_of(2)
        && words.chunks(2).all(|pair| {
            pair[0].parse::<i64>().is_ok_and(|seconds| seconds >= 1)
                && pair[1].parse::<i64>().is_ok_and(|n| n >= 0)
        });
    if valid { Ok(words.join(" ")) } else { Err("Invalid save parameters".into()) }
}

/// Any number of percentages.
pub fn percentiles(words: &[&str], _current: &str) -> Result<String, String> {
    if matches!(words, [""]) {
        return Ok(String::new());
    }
    let is_valid = |word: &&str| word.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent));
    if words.iter().all(is_valid) {
        Ok(words.join(" "))
    } else {
        Err("latency-tracking-info-percentiles should consist of numbers between 0.0 and 100.0".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_units() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("1k", 1000),
            ("1Kb", 1024),
            ("2MB", 2 << 20),
            ("1g", 1_000_000_000),
            ("3b", 3),
        ] {
            assert_eq!(parse_memory(text), Some(bytes), "{text}");
        }
        for text in ["", "mb", "-1", "1.5gb", "1x", "9999999999999gb"] {
            assert_eq!(parse_memory(text), None, "{text}");
        }
    }

    #[test]
    fn memory_or_percent() {
        for (given, shown) in
            [("0", Some("0")), ("10mb", Some("10485760")), ("5%", Some("5%")), ("101%", None), ("x", None)]
        {
            assert_eq!(bytes_or_percent(&[given], "").ok().as_deref(), shown, "{given}");
        }
    }

    #[test]
    fn output_limits_keep_what_is_not_named() {
        let current = "normal 0 0 0 slave 1 2 3 pubsub 4 5 6";
        assert_eq!(
            output_buffer_limits(&["pubsub", "1mb", "2k", "7"], current).unwrap(),
            "normal 0 0 0 slave 1 2 3 pubsub 1048576 2000 7"
        );
        assert!(output_buffer_limits(&["normal", "1", "2"], current).is_err());
        assert!(output_buffer_limits(&["other", "1", "2", "3"], current).is_err());
        assert!(output_buffer_limits(&["normal", "1", "x", "3"], current).is_err());
    }

    #[test]
    fn errors_are_worded_as_in_redis() {
        let error = |kind: Kind, word: &str| kind.parse(&[word], "").unwrap_err();
        assert_eq!(error(Kind::Bool, "1"), "argument must be 'yes' or 'no'");
        assert_eq!(error(Kind::Int { min: 0, max: 5 }, "a"), "argument couldn't be parsed into an integer");
        assert_eq!(error(Kind::Int { min: 0, max: 5 }, "6"), "argument must be between 0 and 5 inclusive");
        assert_eq!(error(Kind::Memory { min: 0, max: 5 }, "-1"), "argument must be a memory value");
        assert_eq!(error(Kind::Choice(&["a", "b"]), "c"), "argument(s) must be one of the following: a, b");
        assert_eq!(error(Kind::Custom(save_points), "a b"), "Invalid save parameters");
    }
}
