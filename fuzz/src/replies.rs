//! Whatever a server sends to the client library, in whatever pieces: its parser finds the same replies, reads strings to where they
//! belong, and never panics.

use crate::Rng;
use holdfast_client::{Decoded, Decoder, Gap};

/// Bytes of a reply beyond which it is passed over.
const REPLY_MAX: usize = 1 << 16;

/// Each reply with the bytes that it has left in the caller's buffer, and whether what follows is refused.
type Replies = (Vec<(Decoded, Vec<u8>)>, bool);

/// Feeds `input` in pieces, as a connection does. There is a buffer of `room` bytes for each reply, if any; `gaps`: strings that have
/// begun are read right to where they belong.
fn decode(input: &[u8], room: Option<usize>, gaps: bool, mut piece: impl FnMut() -> usize) -> Replies {
    let mut decoder = Decoder::new(REPLY_MAX);
    let mut target = room.map(|room| vec![0; room]);
    let (mut replies, mut buf, mut fed) = (Vec::new(), Vec::new(), 0);
    while fed < input.len() {
        let next = &input[fed..(fed + piece()).min(input.len())];
        if gaps && buf.is_empty() {
            let filled = match (decoder.gap(), &mut target) {
                (Some(Gap::Collect(data, left)), _) => {
                    let part = &next[..left.min(next.len())];
                    data.extend_from_slice(part);
                    part.len()
                }
                (Some(Gap::Target(from, to)), Some(target)) => {
                    let len = (to - from).min(next.len());
                    target[from..from + len].copy_from_slice(&next[..len]);
                    len
                }
                _ => 0,
            };
            if filled > 0 {
                decoder.filled(filled);
                fed += filled;
                continue;
            }
        }
        buf.extend_from_slice(next);
        fed += next.len();
        loop {
            match decoder.decode(&buf, target.as_deref_mut()) {
                Ok((used, decoded)) => {
                    buf.drain(..used);
                    let Some(decoded) = decoded else { break };
                    let filled = match (&decoded, &mut target) {
                        (Decoded::Filled(len), Some(target)) => target[..*len].to_vec(),
                        _ => Vec::new(),
                    };
                    replies.push((decoded, filled));
                }
                Err(_) => return (replies, true),
            }
        }
    }
    (replies, false)
}

/// Replies with some mistakes in them.
fn input(rng: &mut Rng) -> Vec<u8> {
    let samples: [&[u8]; 8] = [
        b"*3\r\n+OK\r\n%1\r\n$1\r\na\r\n,1.5\r\n:7\r\n",
        b"$-1\r\n_\r\n#t\r\n(123456789012345678901234567890\r\n",
        b">2\r\n$7\r\nmessage\r\n*0\r\n",
        b"=7\r\ntxt:abc\r\n!5\r\nERR x\r\n-ERR y\r\n",
        b"|1\r\n+ttl\r\n:3\r\n~2\r\n:1\r\n*-1\r\n",
        b"$0\r\n\r\n",
        b"+OK\r\n+OK\r\n",
        b"*2\r\n*2\r\n$3\r\nabc\r\n$2\r\n\r\n\r\n:-9223372036854775808\r\n",
    ];
    let mut input = Vec::new();
    for _ in 0..rng.below(12) {
        match rng.below(10) {
            0 => input.extend(rng.bytes(40)),
            1 => input.extend_from_slice(format!("${}\r\n", rng.draw() as i64 >> rng.below(64)).as_bytes()),
            2..=4 => {
                let string = rng.bytes(300);
                input.extend_from_slice(format!("${}\r\n", string.len()).as_bytes());
                input.extend_from_slice(&string);
                input.extend_from_slice(b"\r\n");
            }
            _ => input.extend_from_slice(samples[rng.index(samples.len())]),
        }
    }
    for _ in 0..rng.below(4) {
        rng.mutate(&mut input);
    }
    input
}

/// Replies that arrive in any pieces are the same as when they arrive at once.
pub fn any_pieces_give_the_same_replies(rng: &mut Rng) {
    let input = input(rng);
    compare_pieces(&input, rng);
}

/// The same for an input that is given.
pub fn compare_pieces(input: &[u8], rng: &mut Rng) {
    let room = rng.one_in(2).then(|| rng.below(300) as usize);
    let whole = decode(input, room, false, || usize::MAX >> 1);
    let longest = 1 + if rng.one_in(2) { rng.below(20) } else { rng.below(500) };
    for gaps in [false, true] {
        let cut = decode(input, room, gaps, || 1 + rng.below(longest) as usize);
        // Numbers that are none are not equal to themselves.
        assert_eq!(format!("{cut:?}"), format!("{whole:?}"), "{gaps}");
        let bytes = decode(input, room, gaps, || 1);
        assert_eq!(format!("{bytes:?}"), format!("{whole:?}"), "{gaps}");
    }
}
