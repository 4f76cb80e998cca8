//! Which server has which keys: hash slots as in Redis Cluster, from the first request on, be the servers a cluster
//! or not.

use crate::address::Address;
use holdfast_resp::Reply;
use std::ops::RangeInclusive;

/// The number of hash slots (Redis Cluster specification).
pub const SLOTS: usize = 16384;

/// The hash slot of a key: CRC16 (XMODEM) of the key, or of its hash tag `{…}` if it has one that is not empty.
pub fn hash_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS as u16
}

/// What is between the first `{` and the next `}`.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let rest = &key[key.iter().position(|&b| b == b'{')? + 1..];
    rest.iter().position(|&b| b == b'}').filter(|&close| close > 0).map(|close| &rest[..close])
}

static TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &b| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ b)])
}

/// The server of each slot, by its number.
pub(crate) struct SlotMap(Vec<u16>);

impl SlotMap {
    /// Slots in equal ranges over `servers` servers, in their order.
    pub fn even(servers: usize) -> SlotMap {
        SlotMap((0..SLOTS).map(|slot| (slot * servers / SLOTS) as u16).collect())
    }

    pub fn server(&self, slot: u16) -> usize {
        usize::from(self.0[usize::from(slot)])
    }

    /// The server of each slot, in the order of slots.
    pub fn servers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|&server| usize::from(server))
    }

    pub fn assign(&mut self, slot: u16, server: usize) {
        self.0[usize::from(slot)] = server as u16;
    }
}

/// Asks a node of a cluster who has which slots.
pub(crate) const ASK_FOR_MAP: &[u8] = b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";

/// Whether a reply to HELLO is that of a node of a cluster.
pub(crate) fn is_node(hello: &Reply) -> bool {
    let text =
        |reply: &Reply, text: &[u8]| matches!(reply, Reply::Bulk(is) | Reply::Simple(is) if is == text);
    let Reply::Map(fields) = hello else { return false };
    fields.iter().any(|(name, value)| text(name, b"mode") && text(value, b"cluster"))
}

/// A range of slots, with its last one, and the server that has them.
pub(crate) type Owned = (RangeInclusive<u16>, Address);

/// Reads a reply to CLUSTER SLOTS that came from `from`. Ranges that are not of this form are left out: MOVED tells of them.
pub(crate) fn parse_map(ranges: &[Reply], from: &Address) -> Vec<Owned> {
    ranges.iter().filter_map(|range| parse_range(range, from)).collect()
}

/// The servers that such a reply names beside those that have the slots: replicas, which know as well who has them.
pub(crate) fn parse_replicas(ranges: &[Reply], from: &Address) -> Vec<Address> {
    let mut replicas = Vec::new();
    for range in ranges {
        let Reply::Array(range) = range else { continue };
        for server in range.iter().skip(3) {
            replicas.extend(parse_server(server, from).filter(|address| !replicas.contains(address)));
        }
    }
    replicas
}

fn parse_range(range: &Reply, from: &Address) -> Option<Owned> {
    let Reply::Array(range) = range else { return None };
    let [Reply::Int(first), Reply::Int(last), owner, ..] = &range[..] else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let address = parse_server(owner, from)?;
    (usize::from(last) < SLOTS).then_some((first..=last, address))
}

fn parse_server(server: &Reply, from: &Address) -> Option<Address> {
    let Reply::Array(server) = server else { return None };
    let [host, Reply::Int(port), ..] = &server[..] else { return None };
    let host = match host {
        Reply::Bulk(host) => std::str::from_utf8(host).ok()?,
        Reply::Null => "",
        _ => return None,
    };
    address_from(from, host, u16::try_from(*port).ok()?)
}

/// The address that a server names: without a host, it is the server's own.
pub(crate) fn address_from(from: &Address, host: &str, port: u16) -> Option<Address> {
    let host = match (host, from) {
        ("", Address::Tcp { host, .. }) => host,
        ("", Address::Unix(_)) => return None,
        // It has no name for that one.
        ("?", _) => return None,
        (host, _) => host,
    };
    Some(Address::Tcp { host: host.to_owned(), port })
}

/// Where a reply of `MOVED` or `ASK` sends a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// For this request only, after ASKING.
    pub ask: bool,
    pub slot: u16,
    /// Empty: the host that has replied.
    pub host: String,
    pub port: u16,
}

impl Redirect {
    /// Reads an error reply; `None` if it is another one, or not of this form.
    pub fn parse(error: &[u8]) -> Option<Redirect> {
        let text = std::str::from_utf8(error).ok()?;
        let (ask, rest) = match text.split_once(' ')? {
            ("MOVED", rest) => (false, rest),
            ("ASK", rest) => (true, rest),
            _ => return None,
        };
        let (slot, address) = rest.split_once(' ')?;
        let slot = slot.parse().ok().filter(|&slot: &u16| usize::from(slot) < SLOTS)?;
        // The host may be an IPv6 address, with colons of its own.
        let (host, port) = address.rsplit_once(':')?;
        Some(Redirect { ask, slot, host: host.to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        // The specification's check value, and slots as Redis tells them.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("", 0), ("foo", 12182), ("bar", 5061), ("123456789", 0x31C3)] {
            assert_eq!(hash_slot(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(hash_slot(b"{user1000}.following"), hash_slot(b"user1000"));
        assert_eq!(hash_slot(b"foo{{bar}}zap"), hash_slot(b"{bar"));
        assert_eq!(hash_slot(b"foo{bar}{zap}"), hash_slot(b"bar"));
        assert_eq!(hash_slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16384);
    }

    #[test]
    fn slots_are_spread_evenly() {
        let map = SlotMap::even(3);
        let mut counts = [0; 3];
        (0..SLOTS as u16).for_each(|slot| counts[map.server(slot)] += 1);
        assert_eq!(counts, [5462, 5461, 5461]);
    }

    #[test]
    fn nodes_of_a_cluster_say_so() {
        let hello = |mode: &str| {
            let text = |text: &str| Reply::Bulk(text.into());
            Reply::Map(vec![(text("proto"), Reply::Int(3)), (text("mode"), text(mode))])
        };
        assert!(is_node(&hello("cluster")));
        assert!(!is_node(&hello("standalone")));
        assert!(!is_node(&Reply::Simple(b"OK".to_vec())));
    }

    #[test]
    fn maps_are_read_strictly() {
        let from = Address::Tcp { host: "h".into(), port: 1 };
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        let range = |first, last, host, port| {
            let owner = Reply::Array(vec![host, Reply::Int(port), Reply::Bulk(b"id".to_vec())]);
            Reply::Array(vec![Reply::Int(first), Reply::Int(last), owner])
        };
        let named = || Reply::Bulk(b"::1".to_vec());
        let map = [
            range(0, 5, named(), 7000),
            range(6, 16383, Reply::Null, 7001),
            range(0, 16384, named(), 1),
            range(-1, 5, named(), 1),
            range(0, 5, named(), 70_000),
            Reply::Array(vec![Reply::Int(1)]),
        ];
        assert_eq!(parse_map(&map, &from), [(0..=5, tcp("::1", 7000)), (6..=16383, tcp("h", 7001))]);
        assert_eq!(parse_map(&map, &Address::Unix("/s".into())), [(0..=5, tcp("::1", 7000))]);
        let [Reply::Array(mut first), Reply::Array(second), ..] = map else { unreachable!() };
        first.extend([second[2].clone(), second[2].clone(), Reply::Null]);
        assert_eq!(parse_replicas(&[Reply::Array(first), Reply::Null], &from), [tcp("h", 7001)]);
    }

    #[test]
    fn redirects_are_read_strictly() {
        let moved = |host: &str| Redirect { ask: false, slot: 3999, host: host.into(), port: 6381 };
        assert_eq!(Redirect::parse(b"MOVED 3999 127.0.0.1:6381"), Some(moved("127.0.0.1")));
        assert_eq!(Redirect::parse(b"MOVED 3999 :6381"), Some(moved("")));
        assert_eq!(Redirect::parse(b"MOVED 3999 ::1:6381"), Some(moved("::1")));
        assert_eq!(Redirect::parse(b"ASK 3999 h:6381"), Some(Redirect { ask: true, ..moved("h") }));
        for text in [
            "MOVED",
            "MOVED 1",
            "MOVED 16384 h:1",
            "MOVED -1 h:1",
            "MOVED 1 h",
            "MOVED 1 h:70000",
            "ERR 1 h:1",
        ] {
            assert_eq!(Redirect::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Redirect::parse(b"MOVED 1 \xff:1"), None);
    }
}
