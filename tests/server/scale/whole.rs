//! Whole collections, walked through as users do: all is there once, in order, and nothing else.

use super::{
    cells::{GROUP, Kind, PART_BYTES, PARTS, Words, now_ms, words},
    writer::Writer,
};
use crate::harness::{Client, array, items, number, text};
use holdfast_resp::Reply;
use std::collections::HashMap;

/// Elements that one command asks for.
const WINDOW: u32 = 700;
/// Cells that are looked at at once.
const LOOKS: usize = 200;

/// What a walk has shown of a cell, as the command for it alone answers; `None`: only its name.
type Shown = Option<Reply>;

impl Writer {
    /// All of some kind, if the server is there until it was seen.
    pub fn check_whole(&mut self, client: &mut Client, kind: Kind) -> Option<()> {
        match kind {
            Kind::Text => self.check_found(kind, client, |writer, client| {
                let prefix = writer.key(kind).trim_end_matches('0').to_owned();
                writer.scan(client, &["SCAN"], &["MATCH", &format!("{prefix}*")], |names| {
                    names
                        .iter()
                        .map(|name| (text(name)[prefix.len()..].parse().expect("a place"), None))
                        .collect()
                })
            }),
            Kind::Field => self.check_found(kind, client, |writer, client| {
                writer.scan(client, &["HSCAN", &writer.key(kind)], &[], |found| {
                    found.chunks(2).map(|pair| (place_of(&pair[0]), Some(pair[1].clone()))).collect()
                })
            }),
            Kind::Member => self.check_found(kind, client, |writer, client| {
                writer.scan(client, &["SSCAN", &writer.key(kind)], &[], |found| {
                    found.iter().map(|member| (place_of(member), Some(Reply::Int(1)))).collect()
                })
            }),
            Kind::Score => self.check_found(kind, client, |writer, client| {
                let count = writer.count(client, "ZCARD", kind)?;
                let mut last = None;
                writer.windows(client, kind, "ZRANGE", count, &["WITHSCORES"], |_, found| {
                    let pair = |pair: &[Reply]| (number(&pair[1]).expect("a score"), place_of(&pair[0]));
                    let pairs = found.chunks(2).map(pair);
                    let found = pairs.map(|(score, place)| {
                        assert!(Some((score, place)) > last, "scores are in order");
                        last = Some((score, place));
                        (place, Some(Reply::Bulk(score.to_string().into_bytes())))
                    });
                    found.collect()
                })
            }),
            Kind::Item => self.check_found(kind, client, |writer, client| {
                let (count, front) = (writer.count(client, "LLEN", kind)?, writer.model.front);
                writer.windows(client, kind, "LRANGE", count, &[], |first, found| {
                    (front + first..).zip(found.iter().cloned().map(Some)).collect()
                })
            }),
            Kind::Entry => self.check_found(kind, client, Writer::entries),
            Kind::Grouped => self.check_groups(client),
            Kind::Part => self.check_strings(client),
        }
    }

    /// Each cell of a kind, by itself.
    pub fn check_each(&mut self, client: &mut Client, kind: Kind) -> Option<()> {
        let places: Vec<u32> = (self.model.begin(kind)..self.model.end(kind)).collect();
        places.chunks(LOOKS).try_for_each(|some| self.look(client, kind, some))
    }

    fn key(&self, kind: Kind) -> String {
        self.model.at(kind, 0).key()
    }

    /// How many elements a collection has, which must be how many there are.
    fn count(&mut self, client: &mut Client, command: &str, kind: Kind) -> Option<u32> {
        let replies = self.ask(client, &[words([&command, &self.key(kind)])])?;
        let cells = &self.model.cells(kind)[self.model.begin(kind) as usize..];
        let expected = cells.iter().filter(|cell| cell.version > 0).count() as i64;
        assert_eq!(replies, [Reply::Int(expected)], "{command} {}", self.key(kind));
        Some(expected as u32)
    }

    /// Compares all cells of a kind with those that a walk has found.
    fn check_found(
        &mut self,
        kind: Kind,
        client: &mut Client,
        walk: impl FnOnce(&mut Writer, &mut Client) -> Option<HashMap<u32, Shown>>,
    ) -> Option<()> {
        let from = now_ms();
        let mut found = walk(self, client)?;
        let times = [from, now_ms()];
        for place in self.model.begin(kind)..self.model.end(kind) {
            let (cell, at) = (self.model.cell(kind, place), self.model.at(kind, place));
            let reply = match found.remove(&place) {
                Some(None) => at.present(cell.version),
                Some(Some(shown)) => shown,
                None => at.absent(),
            };
            self.assert_shown(kind, place, &reply, times);
            self.done += 1;
        }
        assert!(found.is_empty(), "{kind:?}: {found:?} were never there");
        Some(())
    }

    /// What a command of the family of SCAN finds.
    fn scan(
        &mut self,
        client: &mut Client,
        command: &[&str],
        options: &[&str],
        mut read: impl FnMut(&[Reply]) -> Vec<(u32, Shown)>,
    ) -> Option<HashMap<u32, Shown>> {
        let (mut found, mut cursor) = (HashMap::new(), "0".to_owned());
        loop {
            let count = WINDOW.to_string();
            let call = [command, &[&cursor], options, &["COUNT", &count]].concat();
            let call: Words = call.iter().map(|word| word.as_bytes().to_vec()).collect();
            let replies = self.ask(client, &[call])?;
            let [next, some] = items(&replies[0]) else { panic!("{command:?}: {replies:?}") };
            found.extend(read(items(some)));
            cursor = text(next);
            if cursor == "0" {
                return Some(found);
            }
        }
    }

    /// What a command finds that is given ranks, from the first window to the last.
    fn windows(
        &mut self,
        client: &mut Client,
        kind: Kind,
        command: &str,
        count: u32,
        options: &[&str],
        mut read: impl FnMut(u32, &[Reply]) -> Vec<(u32, Shown)>,
    ) -> Option<HashMap<u32, Shown>> {
        let mut found = HashMap::new();
        for first in (0..count).step_by(WINDOW as usize) {
            let mut call =
                words([&command, &self.key(kind), &first.to_string(), &(first + WINDOW - 1).to_string()]);
            call.extend(options.iter().map(|option| option.as_bytes().to_vec()));
            let replies = self.ask(client, &[call])?;
            found.extend(read(first, items(&replies[0])));
        }
        assert_eq!(found.len(), count as usize, "{command} {}", self.key(kind));
        Some(found)
    }

    fn entries(&mut self, client: &mut Client) -> Option<HashMap<u32, Shown>> {
        let count = self.count(client, "XLEN", Kind::Entry)?;
        let (mut found, mut from) = (HashMap::new(), "-".to_owned());
        loop {
            let key = self.key(Kind::Entry);
            let call = words([&"XRANGE", &key, &from, &"+", &"COUNT", &WINDOW.to_string()]);
            let replies = self.ask(client, &[call])?;
            let Some(last) = items(&replies[0]).last() else { break };
            from = format!("({}", text(&items(last)[0]));
            let place = |entry: &Reply| number(&items(entry)[0]).expect("an ID") as u32 - 1;
            found.extend(items(&replies[0]).iter().map(|entry| (place(entry), Some(array([entry.clone()])))));
        }
        assert_eq!(found.len(), count as usize, "XRANGE");
        Some(found)
    }

    fn check_groups(&mut self, client: &mut Client) -> Option<()> {
        let groups: Vec<u32> = (0..self.model.end(Kind::Grouped) / GROUP).collect();
        for some in groups.chunks(LOOKS / 4) {
            let key = |group: &u32| self.model.at(Kind::Grouped, group * GROUP).key();
            let calls: Vec<Words> = some.iter().map(|group| words([&"HGETALL", &key(group)])).collect();
            let from = now_ms();
            let replies = self.ask(client, &calls)?;
            let times = [from, now_ms()];
            for (group, reply) in some.iter().zip(&replies) {
                let pairs = items(reply).chunks(2).map(|pair| (text(&pair[0]), &pair[1]));
                let mut fields: HashMap<String, &Reply> = pairs.collect();
                for place in group * GROUP..(group + 1) * GROUP {
                    let field = fields.remove(&self.model.at(Kind::Grouped, place).name());
                    self.assert_shown(Kind::Grouped, place, field.unwrap_or(&Reply::Null), times);
                    self.done += 1;
                }
                assert!(fields.is_empty(), "{fields:?} were never there");
            }
        }
        Some(())
    }

    fn check_strings(&mut self, client: &mut Client) -> Option<()> {
        for first in (0..self.model.end(Kind::Part)).step_by(PARTS as usize) {
            let replies = self.ask(client, &[words([&"GET", &self.model.at(Kind::Part, first).key()])])?;
            let bytes = replies[0].as_bytes().unwrap_or_default();
            let mut parts = bytes.chunks(PART_BYTES);
            for place in first..first + PARTS {
                let part = parts.next().unwrap_or_default().to_vec();
                self.assert_shown(Kind::Part, place, &Reply::Bulk(part), [0; 2]);
                self.done += 1;
            }
            assert!(parts.next().is_none(), "it is longer than it was ever made");
        }
        Some(())
    }
}

/// The place that a name begins with.
fn place_of(name: &Reply) -> u32 {
    number(name).expect("a name") as u32
}
