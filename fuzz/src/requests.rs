//! Whatever arrives at a connection, in whatever pieces: the parser finds the same commands and never panics, and what
//! it found lies within the input.

use crate::Rng;
use holdfast_resp::{Limits, OwnedArgs, Parser, ProtocolError, Reply, skip_reply, write_command};
use std::collections::VecDeque;

type Parsed = (Vec<OwnedArgs>, Option<ProtocolError>);

/// Feeds `input` in pieces, as a connection does. A command may change the limits for those behind it: each `period`
/// commands the next of `limits` holds.
fn parse(input: &[u8], limits: &[Limits; 2], period: usize, mut piece: impl FnMut() -> usize) -> Parsed {
    let (mut parser, mut commands) = (Parser::new(), Vec::new());
    let mut count = 0;
    let mut upcoming: VecDeque<OwnedArgs> = VecDeque::new();
    let (mut buf, mut fed) = (Vec::new(), 0);
    while fed < input.len() {
        let end = (fed + piece()).min(input.len());
        buf.extend_from_slice(&input[fed..end]);
        fed = end;
        loop {
            match parser.parse(&mut buf, &limits[count / period % 2]) {
                Ok(Some(length)) => {
                    assert!(length <= buf.len() && length == parser.length() && !parser.is_partial());
                    let args = parser.args(&buf);
                    upcoming.pop_front().inspect(|promised| assert_eq!(*promised, args.to_owned()));
                    if upcoming.is_empty() {
                        upcoming.extend(parser.upcoming(&buf).skip(1).map(|args| args.to_owned()));
                    }
                    if !args.is_empty() {
                        commands.push(args.to_owned());
                    }
                    count += 1;
                    buf.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// Requests with some mistakes in them.
fn input(rng: &mut Rng) -> Vec<u8> {
    let mut input = Vec::new();
    let most = if rng.one_in(4) { 60 } else { 8 };
    for _ in 0..rng.below(most) {
        match rng.below(most.max(8)) {
            0 => input.extend(rng.bytes(100)),
            1 => input.extend_from_slice(b"SET \"a\\x41 b\" 'c'\r\n"),
            2 => input.extend_from_slice(
                format!("*{}\r\n${}\r\n", rng.below(12) as i64 - 2, rng.below(12) as i64 - 2).as_bytes(),
            ),
            3 => input.extend_from_slice(format!("*1\r\n${}\r\n", rng.draw() as i64).as_bytes()),
            _ => {
                let args: Vec<Vec<u8>> = (0..rng.below(5)).map(|_| rng.bytes(60)).collect();
                write_command(&mut input, &args);
            }
        }
    }
    for _ in 0..rng.below(4) {
        rng.mutate(&mut input);
    }
    input
}

/// Requests that arrive in any pieces are the same commands as when they arrive at once.
pub fn any_pieces_give_the_same_commands(rng: &mut Rng) {
    let input = input(rng);
    compare_pieces(&input, rng);
}

/// The same for an input that is given.
pub fn compare_pieces(input: &[u8], rng: &mut Rng) {
    let limits =
        [(); 2].map(|()| Limits { unauthenticated: rng.one_in(3), max_bulk_len: 1 << rng.below(40) });
    let period = 1 + rng.below(40) as usize;
    let whole = parse(input, &limits, period, || usize::MAX >> 1);
    let longest = 1 + if rng.one_in(2) { rng.below(20) } else { rng.below(2000) };
    assert_eq!(parse(input, &limits, period, || 1 + rng.below(longest) as usize), whole);
    // Each byte alone: nothing is found as a whole.
    assert_eq!(parse(input, &limits, period, || 1), whole);
}

/// A reply with some mistakes in it is as long as skipping it.
pub fn replies_are_as_long_as_skipping_them(rng: &mut Rng) {
    let mut input = b"*3\r\n+OK\r\n%1\r\n$1\r\na\r\n,1.5\r\n>2\r\n:7\r\n=7\r\ntxt:abc\r\n".to_vec();
    for _ in 0..rng.below(6) {
        rng.mutate(&mut input);
    }
    compare_lengths(&input);
}

/// The same for a reply that is given.
pub fn compare_lengths(input: &[u8]) {
    if let Ok(Some((_, length))) = Reply::parse(input) {
        assert_eq!(skip_reply(input), Ok(Some(length)));
    }
}
