//! Finding the keys of a call by its command's key specifications.

use crate::command::{BeginSearch, Command, Find, KeyAccess, KeySpec};
use holdfast_resp::{Args, parse_int};
use std::cell::OnceCell;

/// The arguments do not tell where the keys are.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidArguments;

/// The keys of a call, found when they are first needed and then kept: rights, slots, locks, cold reads,
/// tracking and keyspace misses go by the same ones.
#[derive(Default)]
pub struct CallKeys(OnceCell<FoundKeys>);

struct FoundKeys {
    keys: Vec<(usize, KeyAccess)>,
    are_all: bool,
}

impl CallKeys {
    fn found(&self, command: &Command, args: Args) -> &FoundKeys {
        self.0.get_or_init(|| {
            let mut keys = Vec::new();
            let found = each_key(command, args, |index, access| keys.push((index, access)));
            FoundKeys { keys, are_all: found.is_ok() }
        })
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.0.get().map_or(0, |found| found.keys.capacity() * size_of::<(usize, KeyAccess)>())
    }

    /// The index of each key, and what is done with it, as far as the arguments tell. Where they do not, the command finds
    /// that fault before it looks at a key.
    pub fn known(&self, command: &Command, args: Args) -> &[(usize, KeyAccess)] {
        &self.found(command, args).keys
    }

    /// As [`CallKeys::known`]; `None` if the arguments do not tell all.
    pub fn whole(&self, command: &Command, args: Args) -> Option<&[(usize, KeyAccess)]> {
        let found = self.found(command, args);
        found.are_all.then_some(&found.keys[..])
    }

    /// The keys and what is done with them; none if the arguments do not tell all.
    pub fn all<'k, 'a: 'k>(
        &'k self,
        command: &Command,
        args: Args<'a>,
    ) -> impl Iterator<Item = (&'a [u8], KeyAccess)> + use<'k, 'a> {
        let keys = self.whole(command, args).unwrap_or_default();
        keys.iter().map(move |&(index, access)| (args.at(index), access))
    }
}

/// Whether who accesses a key so looks at its value.
pub fn reads_value(access: KeyAccess) -> bool {
    access.has(KeyAccess::ACCESS) || access.has(KeyAccess::RW)
}

/// Calls `found` with the index of each key of a call.
pub fn each_key(
    command: &Command,
    args: Args,
    mut found: impl FnMut(usize, KeyAccess),
) -> Result<(), InvalidArguments> {
    if let Some(find_keys) = command.find_keys {
        find_keys(args, &mut found);
        return Ok(());
    }
    for spec in command.keys.iter().filter(|spec| !spec.access.has(KeyAccess::NOT_KEY)) {
        let access = match command.key_access {
            Some(access) if spec.access.has(KeyAccess::VARIABLE_FLAGS) => access(args),
            _ => spec.access,
        };
        each_key_of(spec, args, |index| found(index, access))?;
    }
    Ok(())
}

fn each_key_of(spec: &KeySpec, args: Args, mut found: impl FnMut(usize)) -> Result<(), InvalidArguments> {
    let begin = match spec.begin {
        BeginSearch::Index(index) => index,
        BeginSearch::Keyword(word, from) => match find_word(args, word, from) {
            Some(index) => index + 1,
            // An optional part of the command that is not there.
            None => return Ok(()),
        },
        BeginSearch::Unknown => return Ok(()),
    };
    let (first, last, step) = match spec.find {
        Find::Range { last, step, limit } => {
            let last = if last >= 0 {
                begin as i64 + i64::from(last)
            } else if limit <= 1 {
                args.len() as i64 + i64::from(last)
            } else {
                begin as i64 + (args.len() as i64 - begin as i64) / limit as i64 + i64::from(last)
            };
            (begin, last, step)
        }
        Find::KeyNum { index, first, step } => {
            let count = args.get(begin + index).and_then(parse_int).ok_or(InvalidArguments)?;
            if count < 0 || count > args.len() as i64 {
                return Err(InvalidArguments);
            }
            let first = begin + first;
            (first, first as i64 + (count - 1) * step as i64, step)
        }
        Find::Unknown => return Ok(()),
    };
    if last >= args.len() as i64 {
        return Err(InvalidArguments);
    }
    let mut key = first;
    while key as i64 <= last {
        found(key);
        key += step;
    }
    Ok(())
}

fn find_word(args: Args, word: &str, from: i32) -> Option<usize> {
    let is_word = |&index: &usize| args[index].eq_ignore_ascii_case(word.as_bytes());
    if from >= 0 {
        (from as usize..args.len()).find(is_word)
    } else {
        let last = args.len().checked_sub(from.unsigned_abs() as usize)?;
        (1..=last).rev().find(is_word)
    }
}

/// First key, last key and step in the terms of Redis before version 7: what COMMAND INFO shows beside the
/// specifications. All are 0 if the keys do not form one range.
pub fn legacy_range(command: &Command) -> (i64, i64, i64) {
    let mut all: Option<(i64, i64, i64)> = None;
    for spec in command.keys {
        let (&BeginSearch::Index(first), &Find::Range { last, step, limit: 0 | 1 }) =
            (&spec.begin, &spec.find)
        else {
            continue;
        };
        let first = first as i64;
        let last = if last >= 0 { first + i64::from(last) } else { i64::from(last) };
        all = Some(match all {
            None => (first, last, step as i64),
            // Neighbours join: SMOVE's two keys are one range.
            Some((start, end, step)) if end >= 0 && first == end + 1 => (start, last, step),
            Some(other) => other,
        });
    }
    all.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_resp::OwnedArgs;

    fn keys(specs: &'static [KeySpec], call: &str) -> Result<Vec<usize>, InvalidArguments> {
        let args: OwnedArgs = call.split(' ').collect();
        let command = Command { keys: specs, ..Command::NEW };
        let mut found = Vec::new();
        each_key(&command, args.args(), |index, _| found.push(index)).map(|()| found)
    }

    #[test]
    fn finds_keys() {
        const MSET: &[KeySpec] = &[KeySpec::range(KeyAccess::OW, 1, -1, 2)];
        const ZUNIONSTORE: &[KeySpec] = &[KeySpec::one(KeyAccess::OW, 1), KeySpec::counted(KeyAccess::RO, 2)];
        const XREAD: &[KeySpec] = &[KeySpec {
            access: KeyAccess::RO,
            begin: BeginSearch::Keyword("STREAMS", 1),
            find: Find::Range { last: -1, step: 1, limit: 2 },
        }];
        assert_eq!(keys(MSET, "mset a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(keys(ZUNIONSTORE, "zunionstore to 2 a b weights 1 2"), Ok(vec![1, 3, 4]));
        assert_eq!(keys(ZUNIONSTORE, "zunionstore to 9 a b"), Err(InvalidArguments));
        assert_eq!(keys(ZUNIONSTORE, "zunionstore to x a b"), Err(InvalidArguments));
        assert_eq!(keys(XREAD, "xread count 2 streams a b 0 0"), Ok(vec![4, 5]));
        assert_eq!(keys(XREAD, "xread count 2"), Ok(vec![]));
    }

    #[test]
    fn legacy_ranges() {
        const ONE: KeySpec = KeySpec::one(KeyAccess::RO, 1);
        type Case = (&'static [KeySpec], (i64, i64, i64));
        const CASES: &[Case] = &[
            (&[], (0, 0, 0)),
            (&[ONE], (1, 1, 1)),
            (&[ONE, KeySpec::one(KeyAccess::RO, 2)], (1, 2, 1)),
            (&[KeySpec::range(KeyAccess::RO, 1, -1, 2)], (1, -1, 2)),
            (&[KeySpec::counted(KeyAccess::RO, 1)], (0, 0, 0)),
        ];
        for (keys, range) in CASES {
            assert_eq!(legacy_range(&Command { keys, ..Command::NEW }), *range);
        }
    }
}
