//! Requests: however the input is cut, the same commands come out; and nothing makes the parser panic.

use holdfast_resp::{Limits, OwnedArgs, Parser, ProtocolError, Reply, skip_reply, write_command};
use proptest::{collection::vec, prelude::*};

type Parsed = (Vec<OwnedArgs>, Option<ProtocolError>);

/// Feeds `input` in pieces that end at `cuts`, as a connection does.
fn parse_in_pieces(input: &[u8], cuts: &[usize], limits: &Limits) -> Parsed {
    let mut parser = Parser::new();
    let mut commands = Vec::new();
    let mut buf = Vec::new();
    let mut fed = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(input.len());
    for cut in cuts {
        buf.extend_from_slice(&input[fed..cut]);
        fed = cut;
        loop {
            match parser.parse(&mut buf, limits) {
                Ok(Some(consumed)) => {
                    assert!(!parser.is_partial());
                    let command = parser.args(&buf).to_owned();
                    if !command.args().is_empty() {
                        commands.push(command);
                    }
                    buf.drain(..consumed);
                }
                Ok(None) => {
                    assert!(buf.is_empty() || parser.needed() > buf.len());
                    break;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn parse_whole(input: &[u8], limits: &Limits) -> Parsed {
    parse_in_pieces(input, &[], limits)
}

fn error_of(input: &[u8]) -> String {
    parse_whole(input, &Limits::default()).1.expect("an error").to_string()
}

/// Bytes that look like the protocol more often than chance.
fn protocol_like() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*2\r\n".to_vec()),
        Just(b"*1\r\n".to_vec()),
        Just(b"*0\r\n".to_vec()),
        Just(b"$3\r\nfoo\r\n".to_vec()),
        Just(b"$0\r\n\r\n".to_vec()),
        Just(b"$10\r\n0123456789\r\n".to_vec()),
        Just(b"PING \"a b\" 'c'\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        vec(any::<u8>(), 0..4),
        "[*$%~>|0-9\\-\r\n\"' ]{0,6}".prop_map(String::into_bytes),
    ];
    vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn commands_survive_any_cut(
        commands in vec(vec(vec(any::<u8>(), 0..40), 1..6), 0..50),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let mut input = Vec::new();
        for command in &commands {
            write_command(&mut input, command);
        }
        let expected: Vec<OwnedArgs> = commands.iter().map(|c| c.iter().collect()).collect();
        prop_assert_eq!(parse_in_pieces(&input, &cuts, &Limits::default()), (expected, None));
    }

    #[test]
    fn a_cut_changes_nothing_even_in_bad_input(
        input in protocol_like(),
        cuts in vec(any::<usize>(), 0..20),
        unauthenticated in any::<bool>(),
    ) {
        let limits = Limits { unauthenticated, ..Limits::default() };
        prop_assert_eq!(parse_in_pieces(&input, &cuts, &limits), parse_whole(&input, &limits));
    }

    #[test]
    fn nothing_panics_the_parsers(input in vec(any::<u8>(), 0..300)) {
        parse_whole(&input, &Limits::default());
        let _ = Reply::parse(&input);
        let _ = skip_reply(&input);
    }

    #[test]
    fn a_reply_is_as_long_as_skipping_it(input in protocol_like()) {
        if let Ok(Some((_, length))) = Reply::parse(&input) {
            prop_assert_eq!(skip_reply(&input), Ok(Some(length)));
        }
    }
}

#[test]
fn errors_are_worded_as_in_redis() {
    assert_eq!(error_of(b"*2147483648\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*01\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1\r\nx4\r\n"), "Protocol error: expected '$', got 'x'");
    assert_eq!(error_of(b"*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"PING \"a\r\n"), "Protocol error: unbalanced quotes in request");
    let long = |start: &[u8]| [start, &b"1".repeat(70_000)].concat();
    assert_eq!(error_of(&long(b"*")), "Protocol error: too big mbulk count string");
    assert_eq!(error_of(&long(b"*1\r\n$")), "Protocol error: too big bulk count string");
    assert_eq!(error_of(&long(b"x")), "Protocol error: too big inline request");
}

#[test]
fn strangers_may_send_little() {
    let limits = Limits { unauthenticated: true, ..Limits::default() };
    assert_eq!(parse_whole(b"*10\r\n", &limits).1, None);
    assert_eq!(parse_whole(b"*11\r\n", &limits).1, Some(ProtocolError::UnauthenticatedMultibulkLength));
    assert_eq!(parse_whole(b"*1\r\n$16384\r\n", &limits).1, None);
    assert_eq!(parse_whole(b"*1\r\n$16385\r\n", &limits).1, Some(ProtocolError::UnauthenticatedBulkLength));
}

/// The commands that the parser says come next, behind the one that it has found.
fn ahead(parser: &Parser, buf: &[u8]) -> usize {
    parser.upcoming(buf).count() - 1
}

#[test]
fn commands_of_a_pipeline_are_known_ahead() {
    let set = b"*3\r\n$3\r\nSET\r\n$12\r\nhello, world\r\n$0\r\n\r\n";
    let mut buf = [&set[..], b"*0\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", set].concat();
    let mut parser = Parser::new();
    assert_eq!(parser.parse(&mut buf, &Limits::default()), Ok(Some(set.len())));
    assert!(parser.has_ahead());
    let upcoming: Vec<_> = parser.upcoming(&buf).map(|args| args.iter().collect::<Vec<_>>()).collect();
    assert_eq!(upcoming, [vec![&b"SET"[..], b"hello, world", b""], vec![], vec![b"PING"]]);
    for (length, left) in [(4, 1), (14, 0), (6, 0), (set.len(), 0)] {
        buf.drain(..parser.length());
        assert_eq!(parser.parse(&mut buf, &Limits::default()), Ok(Some(length)));
        assert_eq!(ahead(&parser, &buf), left);
    }
    buf.drain(..set.len());
    assert!(buf.is_empty());
}

#[test]
fn only_whole_commands_within_the_limits_are_ahead() {
    let limits = Limits { max_bulk_len: 5, ..Limits::default() };
    let ping = b"*1\r\n$4\r\nPING\r\n";
    let second = b"*2\r\n$3\r\nGET\r\n$5\r\nhello\r\n";
    let count = |second: &[u8], limits: &Limits| {
        let (mut parser, mut buf) = (Parser::new(), [ping, second].concat());
        assert_eq!(parser.parse(&mut buf, limits), Ok(Some(ping.len())));
        ahead(&parser, &buf)
    };
    assert_eq!(count(second, &limits), 1);
    assert_eq!(count(second, &Limits { unauthenticated: true, ..limits }), 0);
    (0..second.len()).for_each(|length| assert_eq!(count(&second[..length], &limits), 0, "{length}"));
    for other in [
        &b"GET x\r\n"[..],
        b"*2\r\n$3\r\nGET\r\n$6\r\nhello!\r\n",
        b"*2\r\n$-1\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*99999999999\r\n",
    ] {
        assert_eq!(count(other, &limits), 0, "{}", other.escape_ascii());
    }
    assert_eq!(count(&b"*1\r\n$1\r\nx\r\n".repeat(100), &limits), 31);
    let long = [&b"*600\r\n"[..], &b"$1\r\nx\r\n".repeat(600)].concat();
    assert_eq!(count(&long.repeat(2), &limits), 1, "lists of arguments stay short");
}

#[test]
fn what_is_ahead_is_looked_at_again_under_other_limits() {
    let mut buf = b"*1\r\n$4\r\nAUTH\r\n*1\r\n$4\r\nPING\r\n".to_vec();
    for limits in
        [Limits { max_bulk_len: 3, ..Limits::default() }, Limits { unauthenticated: true, max_bulk_len: 3 }]
    {
        let mut parser = Parser::new();
        assert_eq!(parser.parse(&mut buf, &Limits::default()), Ok(Some(14)));
        assert!(parser.has_ahead());
        assert_eq!(parser.parse(&mut buf[14..], &limits), Err(ProtocolError::BulkLength));
    }
}

#[test]
fn empty_commands_are_skipped() {
    let (commands, error) = parse_whole(b"\r\n*0\r\n*-1\r\n  \nPING\n", &Limits::default());
    assert_eq!((commands.len(), error), (1, None));
}

#[test]
fn the_end_of_an_announced_argument_is_known() {
    let mut parser = Parser::new();
    let mut buf = b"*1\r\n$100000\r\nab".to_vec();
    assert_eq!(parser.parse(&mut buf, &Limits::default()), Ok(None));
    assert_eq!(parser.needed(), 4 + 9 + 100_000 + 2);
}

#[test]
fn replies_of_every_type() {
    let input = b"*12\r\n+a\r\n-ERR b\r\n:-3\r\n$1\r\nc\r\n$-1\r\n_\r\n#t\r\n,1.5\r\n(12345678901234567890\r\n=5\r\ntxt:d\r\n%1\r\n:1\r\n~1\r\n:2\r\n>1\r\n:3\r\n";
    let (reply, length) = Reply::parse(input).unwrap().unwrap();
    assert_eq!(length, input.len());
    let expected = Reply::Array(vec![
        Reply::Simple(b"a".to_vec()),
        Reply::Error(b"ERR b".to_vec()),
        Reply::Int(-3),
        Reply::Bulk(b"c".to_vec()),
        Reply::Null,
        Reply::Null,
        Reply::Bool(true),
        Reply::Double(1.5),
        Reply::BigNumber(b"12345678901234567890".to_vec()),
        Reply::Verbatim(*b"txt", b"d".to_vec()),
        Reply::Map(vec![(Reply::Int(1), Reply::Set(vec![Reply::Int(2)]))]),
        Reply::Push(vec![Reply::Int(3)]),
    ]);
    assert_eq!(reply, expected);
    for cut in 0..input.len() {
        assert_eq!(Reply::parse(&input[..cut]), Ok(None));
        assert_eq!(skip_reply(&input[..cut]), Ok(None));
    }
}

#[test]
fn deeply_nested_replies_are_refused() {
    assert!(Reply::parse(&b"*1\r\n".repeat(100_000)).is_err());
}
