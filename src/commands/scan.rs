//! The arguments of SCAN, HSCAN, SSCAN and ZSCAN, and the reply of the latter three.

use crate::{command::error::NOT_INTEGER, commands::prelude::*, util::glob};
use holdfast_resp::parse_int;

/// Elements that one step looks at unless told otherwise.
const COUNT: usize = 10;

/// What a step of a scan is to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    /// MATCH, unless everything does.
    pub pattern: Option<&'a [u8]>,
    /// COUNT: elements to look at, about.
    pub count: usize,
    /// NOVALUES or NOSCORES: fields without their values, members without their scores.
    pub only_names: bool,
}

/// The options without an argument, each of one command.
const FLAGS: [(&str, &str, Stop); 2] = [
    ("hscan", "novalues", Stop::new("ERR NOVALUES option can only be used in HSCAN")),
    ("zscan", "noscores", Stop::new("ERR NOSCORES option can only be used in ZSCAN")),
];

impl<'a> Options<'a> {
    /// Reads the options of a command behind its cursor. `other` is shown those that not all scans have, with their
    /// argument, and says whether it knows them.
    pub fn parse(
        command: &str,
        args: Args<'a>,
        mut other: impl FnMut(&'a [u8], &'a [u8]) -> Result<bool, Stop>,
    ) -> Result<Self, Stop> {
        let mut options = Options { pattern: None, count: COUNT, only_names: false };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let is_flag = |(_, flag, _): &&(_, &str, _)| name.eq_ignore_ascii_case(flag.as_bytes());
            if let Some((its_command, _, error)) = FLAGS.iter().find(is_flag) {
                if *its_command != command {
                    return Err(error.clone());
                }
                options.only_names = true;
                continue;
            }
            let value = args.next().ok_or(SYNTAX)?;
            if name.eq_ignore_ascii_case(b"match") {
                options.pattern = Some(value).filter(|&pattern| pattern != b"*");
            } else if name.eq_ignore_ascii_case(b"count") {
                let count = parse_int(value).ok_or(NOT_INTEGER)?;
                options.count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
            } else if !other(name, value)? {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// Whether an element is to be returned.
    pub fn matches(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element))
    }
}

/// Reads a cursor, as C's `strtoul` does: no digits are 0, and a negative number wraps around.
pub fn parse_cursor(text: &[u8]) -> Result<u64, Stop> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let add = |all: u64, &digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        all.checked_mul(10)?.checked_add(digit)
    };
    let cursor = digits.iter().try_fold(0, add).ok_or(Stop::new("ERR invalid cursor"))?;
    Ok(if negative { cursor.wrapping_neg() } else { cursor })
}

/// What a step of a scan over a collection uses.
pub fn uses(args: Args) -> Vec<Use> {
    let mut options = args.iter().skip(3).skip_while(|word| !word.eq_ignore_ascii_case(b"count"));
    let count = options.nth(1).and_then(parse_int).and_then(|count| usize::try_from(count).ok());
    let used = |cursor| Use::Scan { cursor, count: count.unwrap_or(COUNT) };
    parse_cursor(args.at(2)).map(used).into_iter().collect()
}

/// Writes the reply of a scan over a collection. `step` writes the elements, and returns the next cursor and how many
/// replies it wrote.
pub fn reply(out: &mut Writer, step: impl FnOnce(&mut Writer) -> (u64, usize)) {
    out.array(2);
    let place = out.defer();
    let (next, count) = step(out);
    out.set_array(place, count);
    out.set_bulk(place, next.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_resp::OwnedArgs;

    #[test]
    fn cursors() {
        for (text, cursor) in
            [("0", 0), ("", 0), ("+7", 7), ("007", 7), ("-1", u64::MAX), ("18446744073709551615", u64::MAX)]
        {
            assert_eq!(parse_cursor(text.as_bytes()), Ok(cursor), "{text}");
        }
        for text in ["x", "1x", " 1", "++1", "18446744073709551616"] {
            assert!(parse_cursor(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn options() {
        let parse = |text: &str| {
            let args: OwnedArgs = text.split_whitespace().collect();
            Options::parse("scan", args.args(), |name, _| Ok(name == b"type"))
                .map(|o| (o.count, o.pattern.is_some()))
        };
        assert_eq!(parse(""), Ok((10, false)));
        assert_eq!(parse("COUNT 5 match a* type string"), Ok((5, true)));
        assert_eq!(parse("match a* match *"), Ok((10, false)));
        for wrong in ["count", "count 0", "count -1", "nope 1", "match"] {
            assert_eq!(parse(wrong), Err(SYNTAX), "{wrong}");
        }
        assert_eq!(parse("count x"), Err(NOT_INTEGER));
    }

    #[test]
    fn flags_are_of_one_command() {
        let args: OwnedArgs = "NOVALUES match a".split_whitespace().collect();
        let parse = |command| Options::parse(command, args.args(), |_, _| Ok(false)).map(|o| o.only_names);
        assert_eq!(parse("hscan"), Ok(true));
        assert_eq!(parse("zscan"), Err(FLAGS[0].2.clone()));
    }
}
