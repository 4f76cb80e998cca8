//! LCS: the longest common subsequence of two strings.

use crate::commands::prelude::*;
use holdfast_store::Type;

const NOT_STRINGS: Stop = Stop::new("ERR The specified keys must contain string values");
const BOTH: Stop = Stop::new("ERR If you want both the length and indexes, please just use IDX.");
const TOO_LARGE: Stop =
    Stop::new("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
/// Bytes that the table of lengths may take.
const TABLE_MAX: usize = 512 << 20;

/// A stretch that both strings have, where it lies in each; both ends included.
#[derive(Debug, PartialEq, Eq)]
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

impl Match {
    fn len(&self) -> usize {
        self.a.1 - self.a.0 + 1
    }
}

/// The handler.
pub fn lcs(call: &mut Call, txn: &mut Txn) -> Answer {
    let db = call.db();
    for key in [call.args.at(1), call.args.at(2)] {
        if !matches!(txn.type_of(db, key), None | Some(Type::String)) {
            return Err(NOT_STRINGS);
        }
    }
    let a = txn.get(db, call.args.at(1))?.unwrap_or_default().to_vec();
    let b = txn.get(db, call.args.at(2))?.unwrap_or_default().to_vec();
    let (mut only_len, mut indexes, mut with_len, mut min_len) = (false, false, false, 0);
    let mut next = 3;
    while next < call.args.len() {
        if call.is(next, "len") {
            only_len = true;
        } else if call.is(next, "idx") {
            indexes = true;
        } else if call.is(next, "withmatchlen") {
            with_len = true;
        } else if call.is(next, "minmatchlen") && next + 1 < call.args.len() {
            next += 1;
            min_len = call.int(next)?.max(0) as usize;
        } else {
            return Err(SYNTAX);
        }
        next += 1;
    }
    if only_len && indexes {
        return Err(BOTH);
    }
    let table = Table::new(&a, &b)?;
    if only_len {
        call.out.int(i64::from(table.at(a.len(), b.len())));
        return Ok(Done);
    }
    let matches = table.matches(&a, &b);
    if !indexes {
        let common: Vec<u8> = matches.iter().rev().flat_map(|m| &a[m.a.0..=m.a.1]).copied().collect();
        call.out.bulk(common);
        return Ok(Done);
    }
    let shown: Vec<&Match> = matches.iter().filter(|m| m.len() >= min_len).collect();
    call.out.map(2);
    call.out.key("matches").array(shown.len());
    for found in shown {
        call.out.array(2 + usize::from(with_len));
        for (start, end) in [found.a, found.b] {
            call.out.array(2);
            call.out.int(start as i64);
            call.out.int(end as i64);
        }
        if with_len {
            call.out.int(found.len() as i64);
        }
    }
    call.out.bulk("len");
    call.reply_int(i64::from(table.at(a.len(), b.len())))
}

/// For each pair of prefixes, the length of their longest common subsequence.
struct Table {
    lens: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Result<Table, Stop> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width).filter(|cells| cells.saturating_mul(4) <= TABLE_MAX);
        let mut table = Table { lens: vec![0; cells.ok_or(TOO_LARGE)?], width };
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table.lens[i * width + j] = if a[i - 1] == b[j - 1] {
                    table.at(i - 1, j - 1) + 1
                } else {
                    table.at(i - 1, j).max(table.at(i, j - 1))
                };
            }
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.lens[i * self.width + j]
    }

    /// The stretches that one longest common subsequence consists of, from the strings' ends on, as Redis finds them.
    fn matches(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        let (mut i, mut j) = (a.len(), b.len());
        let mut matches: Vec<Match> = Vec::new();
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match matches.last_mut() {
                    Some(last) if last.a.0 == i + 1 && last.b.0 == j + 1 => (last.a.0, last.b.0) = (i, j),
                    _ => matches.push(Match { a: (i, i), b: (j, j) }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_documentation_shows() {
        let (a, b) = (b"ohmytext", b"mynewtext");
        let table = Table::new(a, b).unwrap();
        assert_eq!(table.at(a.len(), b.len()), 6);
        let matches = table.matches(a, b);
        assert_eq!(matches, [Match { a: (4, 7), b: (5, 8) }, Match { a: (2, 3), b: (0, 1) }]);
        assert!(Table::new(b"", b"x").unwrap().matches(b"", b"x").is_empty());
    }
}
