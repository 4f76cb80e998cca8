//! Where a server of a replica set is, as its options name it; and where those that belong together connect to each other.

use super::{Config, Opt};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// What is added to the port for clients to get that for other servers, if no other one is named.
const BUS_PORT_OFFSET: u16 = 10000;

/// Where a server of the set is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an address.
    pub host: String,
    /// Where clients connect.
    pub port: u16,
    /// Where the other servers connect.
    pub bus_port: u16,
}

impl Address {
    /// Where the other servers connect: host and port.
    pub fn on_bus(&self) -> (String, u16) {
        (self.host.clone(), self.bus_port)
    }
}

impl FromStr for Address {
    type Err = ();

    /// `host:port`, or `host:port@bus-port`. The port stands behind the last colon.
    fn from_str(text: &str) -> Result<Address, ()> {
        let (place, bus_port) = text.split_once('@').map_or((text, None), |(place, bus)| (place, Some(bus)));
        let (host, port) = place.rsplit_once(':').ok_or(())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port: u16 = port.parse().map_err(drop)?;
        let bus_port = match bus_port {
            Some(bus_port) => bus_port.parse().map_err(drop)?,
            None => port.checked_add(BUS_PORT_OFFSET).ok_or(())?,
        };
        let is_whole = !host.is_empty() && port > 0 && bus_port > 0;
        if is_whole { Ok(Address { host: host.to_owned(), port, bus_port }) } else { Err(()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port, bus_port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}@{bus_port}"),
            false => write!(f, "{host}:{port}@{bus_port}"),
        }
    }
}

/// Servers named at most: those of a set, and what is left of some that were replaced.
const LISTED_MAX: usize = 16;

/// Servers by their numbers, as a list of words names them: each has the number behind that of the one before, or that which it is given, as in
/// `5=host:port`.
///
/// # Errors
/// The text of one.
pub fn parse_servers<'w>(words: impl Iterator<Item = &'w str>) -> Result<BTreeMap<u64, Address>, String> {
    let mut servers = BTreeMap::new();
    for word in words {
        let next = servers.last_key_value().map_or(1, |(last, _)| last + 1);
        let (number, place) = match word.split_once('=') {
            Some((number, place)) => (number.parse().ok().filter(|number| *number >= next), place),
            None => (Some(next), word),
        };
        let number = number.ok_or_else(|| {
            format!("'{word}' has no number, or one that is not greater than that of the server before")
        })?;
        let server: Address =
            place.parse().map_err(|()| format!("'{word}' is not host:port or host:port@bus-port"))?;
        if servers.values().any(|other| *other == server) {
            return Err("a server is named twice".into());
        }
        servers.insert(number, server);
    }
    match servers.len() {
        1 => Err("a replica set has other servers, too".into()),
        count if count > LISTED_MAX => Err(format!("{count} servers are too many")),
        _ => Ok(servers),
    }
}

/// A list that names servers with these numbers.
pub fn show_servers(servers: &BTreeMap<u64, Address>) -> String {
    let mut next = 1;
    let word = |(number, address): (&u64, &Address)| {
        let is_next = *number == next;
        next = number + 1;
        if is_next { address.to_string() } else { format!("{number}={address}") }
    };
    servers.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The port at which other servers connect: what `option` says, or by the port for clients. `None`: that is too large, or there is none.
pub fn bus_port(config: &Config, option: Opt) -> Option<u16> {
    match config.number(option) {
        0 => {
            let ports = [Opt::Port, Opt::TlsPort].map(|opt| config.number(opt) as u16);
            ports.into_iter().find(|port| *port > 0)?.checked_add(BUS_PORT_OFFSET)
        }
        port => u16::try_from(port).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_is_read_as_it_is_shown() {
        let parse = |text: &str| parse_servers(text.split_whitespace());
        for text in ["", "a:1@2 b:1@2 c:1@2", "a:1@2 3=[::1]:1@2 d:1@2 9=e:1@2"] {
            assert_eq!(show_servers(&parse(text).unwrap()), text);
        }
        assert_eq!(show_servers(&parse("1=a:1 2=b:1 4=c:1").unwrap()), "a:1@10001 b:1@10001 4=c:1@10001");
        for text in ["a:1", "a:1 a:1", "2=a:1 2=b:1", "a:1 0=b:1", "a:1 x=b:1", "a:1 =b:1", "a:1 3=", "a:1 b"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let many: Vec<String> = (1..=17).map(|n| format!("a:{n}")).collect();
        assert!(parse(&many.join(" ")).is_err());
    }

    #[test]
    fn an_address_is_read_as_it_is_shown() {
        for text in ["host:6379@16379", "[::1]:1@2", "10.0.0.1:65535@1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("host:6379".parse::<Address>().unwrap().bus_port, 16379);
        for text in ["", "host", "host:", ":1", "host:0", "host:1@0", "host:60000", "host:1@x", "host:1@2@3"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
