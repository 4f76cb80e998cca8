//! Who a server is, and where.

use data_encoding::HEXLOWER;
use holdfast_consensus::code::{Decoder, Encoder, Malformed};
use std::fmt;

/// The name of a server, or of its shard: forty hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub [u8; 20]);

impl Name {
    /// A name of these digits; `None`: they are none.
    pub fn parse(digits: &[u8]) -> Option<Name> {
        let lower = digits.to_ascii_lowercase();
        HEXLOWER.decode(&lower).ok()?.try_into().ok().map(Name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Ends the host of an [`Address`] among its bytes if there is a hostname, too: no name has it.
const HOSTNAME_FOLLOWS: char = '\0';

/// Where a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// A name or an address; empty: it is not known yet.
    pub host: String,
    /// A name that clients may be told instead; empty: there is none.
    pub hostname: String,
    /// Where clients connect.
    pub port: u16,
    /// Where clients connect by TLS; 0: nowhere.
    pub tls_port: u16,
    /// Where the other servers connect.
    pub bus_port: u16,
}

impl Address {
    pub(crate) fn encode(&self, out: &mut Encoder) {
        let mut hosts = self.host.clone();
        if !self.hostname.is_empty() {
            hosts.push(HOSTNAME_FOLLOWS);
            hosts.push_str(&self.hostname);
        }
        out.bytes(hosts.as_bytes()).u32(self.port.into()).u32(self.tls_port.into()).u32(self.bus_port.into());
    }

    pub(crate) fn decode(bytes: &mut Decoder) -> Result<Address, Malformed> {
        let hosts = str::from_utf8(bytes.bytes()?).map_err(|_| Malformed)?;
        let (host, hostname) = hosts.split_once(HOSTNAME_FOLLOWS).unwrap_or((hosts, ""));
        let (host, hostname) = (host.to_owned(), hostname.to_owned());
        let mut port = || u16::try_from(bytes.u32()?).map_err(|_| Malformed);
        Ok(Address { host, hostname, port: port()?, tls_port: port()?, bus_port: port()? })
    }
}

/// Which server of which replica set one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The set.
    pub set: u64,
    /// The number of the server in it. One that has lost its data has the same as before, but another name.
    pub server: u64,
}

impl Seat {
    /// The last of a message's fields, which those of no replica set do not have.
    pub(crate) fn encode(seat: Option<Seat>, out: &mut Encoder) {
        if let Some(Seat { set, server }) = seat {
            out.u64(set).u64(server);
        }
    }

    pub(crate) fn decode(bytes: &mut Decoder) -> Result<Option<Seat>, Malformed> {
        if bytes.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(Seat { set: bytes.u64()?, server: bytes.u64()? }))
    }
}

pub(crate) fn name(bytes: &mut Decoder) -> Result<Name, Malformed> {
    bytes.bytes()?.try_into().map(Name).map_err(|_| Malformed)
}
