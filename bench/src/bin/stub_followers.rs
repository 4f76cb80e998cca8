//! Followers of a replica set that only say that they have everything, to see what a leader does for them, and what that costs.
//!
//! ```text
//! stub_followers LEADER PORT...
//! ```
//! The leader's port for the set, and those of followers that have ended, whose places are taken. Everything is on this machine. What goes to and fro
//! is described in src/transport/trust.rs, src/net/bus.rs, src/replica_set/frame.rs and crates/consensus/src/message.rs. `bench/replica_set.py` starts it.

use hmac::{Hmac, Mac};
use holdfast_consensus::code::{Decoder, Encoder, Malformed};
use holdfast_io::crc32c;
use sha2::Sha256;
use std::{
    env,
    error::Error,
    io::{BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PREFACE: &[u8; 8] = b"HFset04\n";
/// Of frames: one with a message of the group.
const ENVELOPE: u8 = 4;
/// Of messages, as they are numbered.
const APPEND: u8 = 1;
const VOTE: u8 = 3;
const HEARTBEAT: u8 = 6;
const PRE_VOTE: u8 = 10;

/// At which end of a connection somebody is.
#[derive(Clone, Copy)]
enum End {
    Connects,
    Accepts,
}

/// Knows the password, which is empty.
fn proof(end: End, connects: &[u8], accepts: &[u8]) -> Vec<u8> {
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(&[]).expect("a key may have any length");
    let mac = mac.chain_update([end as u8]).chain_update(PREFACE);
    mac.chain_update(connects).chain_update(accepts).finalize().into_bytes().to_vec()
}

fn connect(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let (ours, mut theirs) = ([1; 32], [0; 64]);
    stream.write_all(&[&PREFACE[..], &ours].concat())?;
    stream.read_exact(&mut theirs)?;
    stream.write_all(&proof(End::Connects, &ours, &theirs[..32]))?;
    Ok(stream)
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (mut stream, _) = listener.accept()?;
    let (mut theirs, ours, mut known) = ([0; 40], [2; 32], [0; 32]);
    stream.read_exact(&mut theirs)?;
    stream.write_all(&[&ours[..], &proof(End::Accepts, &theirs[8..], &ours)].concat())?;
    stream.read_exact(&mut known)?;
    Ok(stream)
}

/// What answers a frame, if it is to be answered.
fn reply_to(frame: &[u8]) -> std::result::Result<Option<Vec<u8>>, Malformed> {
    let mut frame = Decoder(frame);
    if frame.u8()? != ENVELOPE {
        return Ok(None);
    }
    let (set, mut envelope) = (frame.u64()?, Decoder(frame.bytes()?));
    let (stamp, _, mut message) = (envelope.u64()?, envelope.u64()?, Decoder(envelope.bytes()?));
    let (kind, to, from, term) = (message.u8()?, message.u64()?, message.u64()?, message.u64()?);
    let (_, mut index, commit, _) = (message.u64()?, message.u64()?, message.u64()?, message.u64()?);
    let (_, _, _, _) = (message.u8()?, message.u64()?, message.u64()?, message.u64()?);
    let (mut context, _) = (message.bytes()?, message.u8()?);
    if ![APPEND, VOTE, HEARTBEAT, PRE_VOTE].contains(&kind) {
        return Ok(None);
    }
    if kind == APPEND {
        // Entries follow each other.
        index += u64::from(message.u32()?);
        context = &[];
    }
    let mut reply = Encoder::default();
    reply.u8(ENVELOPE).u64(set).nested(|reply| {
        reply.u64(0).u64(stamp).nested(|reply| {
            reply.u8(kind + 1).u64(from).u64(to).u64(term).u64(0).u64(index).u64(commit).u64(0);
            reply.u8(0).u64(0).u64(0).u64(0).bytes(context).u8(0).u32(0);
        });
    });
    Ok(Some(reply.into_bytes()))
}

/// Answers what the leader says at a port, until it ends.
fn follow(leader: u16, listener: &TcpListener) -> Result<()> {
    let mut stream = BufReader::with_capacity(1 << 18, accept(listener)?);
    let mut way = connect(leader)?;
    let (mut head, mut frame) = ([0; 8], Vec::new());
    loop {
        stream.read_exact(&mut head)?;
        frame.resize(u32::from_le_bytes(head[..4].try_into()?) as usize, 0);
        stream.read_exact(&mut frame)?;
        if let Some(reply) = reply_to(&frame).map_err(|Malformed| "a frame of another version")? {
            let head = [(reply.len() as u32).to_le_bytes(), crc32c(&reply).to_le_bytes()].concat();
            way.write_all(&[head, reply].concat())?;
        }
    }
}

fn main() -> Result<()> {
    let ports = env::args().skip(1).map(|port| port.parse()).collect::<std::result::Result<Vec<u16>, _>>()?;
    let [leader, followers @ ..] = &ports[..] else { return Err("stub_followers LEADER PORT...".into()) };
    let leader = *leader;
    let listen = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
    let listeners = followers.iter().map(listen).collect::<std::io::Result<Vec<_>>>()?;
    let run = |listener: TcpListener| {
        thread::spawn(move || {
            loop {
                if let Err(error) = follow(leader, &listener) {
                    eprintln!("{error}");
                }
            }
        })
    };
    let threads: Vec<_> = listeners.into_iter().map(run).collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has failed".into()))
}
