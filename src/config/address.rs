//! Where a server of a replica set is, as its options name it; and where those that belong together connect to each other.

use super::{Config, Opt};
use std::{fmt, str::FromStr};

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
