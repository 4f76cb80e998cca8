//! The reply parser: whatever is sent, and however it is cut, what comes out is what a parser of whole replies finds.

use holdfast_client::{Decoded, Decoder, Gap, Reply};
use proptest::{collection::vec, prelude::*};
use std::fs;

const BYTES_MAX: usize = 1 << 20;

/// A reply and one of the ways to send it.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let line = "[ -~]{0,12}";
    let leaf = prop_oneof![
        line.prop_map(|text| format!("+{text}\r\n").into_bytes()),
        line.prop_map(|text| format!("-{text}\r\n").into_bytes()),
        any::<i64>().prop_map(|value| format!(":{value}\r\n").into_bytes()),
        Just(b"_\r\n".to_vec()),
        Just(b"$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        Just(b"#t\r\n".to_vec()),
        Just(b",1.5e3\r\n".to_vec()),
        Just(b"(12345678901234567890\r\n".to_vec()),
        Just(b"=5\r\ntxt:a\r\n".to_vec()),
        Just(b"!3\r\nE x\r\n".to_vec()),
        vec(any::<u8>(), 0..40).prop_map(|bytes| [
            format!("${}\r\n", bytes.len()).as_bytes(),
            &bytes,
            b"\r\n"
        ]
        .concat()),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            (prop_oneof![Just('*'), Just('~'), Just('>')], vec(inner.clone(), 0..5)).prop_map(
                |(kind, items)| {
                    [format!("{kind}{}\r\n", items.len()).into_bytes(), items.concat()].concat()
                }
            ),
            vec((inner.clone(), inner.clone()), 0..3).prop_map(|pairs| {
                let items: Vec<u8> =
                    pairs.iter().flat_map(|(key, value)| [&key[..], value].concat()).collect();
                [format!("%{}\r\n", pairs.len()).into_bytes(), items].concat()
            }),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(key, value, reply)| { [b"|1\r\n".to_vec(), key, value, reply].concat() }),
        ]
    })
}

/// What a parser of whole replies finds, with the bytes that are left; `Err` from the first bad reply on.
fn model(mut input: &[u8]) -> (Vec<Reply>, bool) {
    let mut replies = Vec::new();
    loop {
        match Reply::parse(input) {
            Ok(Some((reply, len))) => {
                replies.push(reply);
                input = &input[len..];
            }
            Ok(None) => return (replies, true),
            Err(_) => return (replies, false),
        }
    }
}

/// What a reply counts for.
fn cost(mut reply: &[u8]) -> usize {
    let mut cost = 0;
    while let Some(end) = reply.windows(2).position(|two| two == b"\r\n") {
        let (line, rest) = reply.split_at(end + 2);
        let text = &line[1..end];
        let string = match line[0] {
            b'$' | b'=' | b'!' => std::str::from_utf8(text).unwrap().parse().ok(),
            _ => None,
        };
        let own = if matches!(line[0], b'+' | b'-' | b'(') { text.len() } else { string.unwrap_or(0) };
        cost += 64 + own;
        reply = &rest[string.map_or(0, |len: usize| len + 2)..];
    }
    cost
}

/// Feeds pieces as a connection does: what is not consumed comes again, and gaps are filled directly.
fn decode(pieces: &[&[u8]], target: Option<&mut [u8]>) -> (Vec<Decoded>, bool) {
    decode_with(Decoder::new(BYTES_MAX), pieces, target)
}

fn decode_with(
    mut decoder: Decoder,
    pieces: &[&[u8]],
    mut target: Option<&mut [u8]>,
) -> (Vec<Decoded>, bool) {
    let (mut found, mut kept) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut piece = *piece;
        if kept.is_empty() {
            let filled = match decoder.gap() {
                Some(Gap::Collect(data, left)) => {
                    data.extend_from_slice(&piece[..left.min(piece.len())]);
                    left.min(piece.len())
                }
                Some(Gap::Target(from, to)) => {
                    let len = piece.len().min(to - from);
                    target.as_mut().expect("a target")[from..from + len].copy_from_slice(&piece[..len]);
                    len
                }
                None => 0,
            };
            if filled > 0 {
                decoder.filled(filled);
                piece = &piece[filled..];
            }
        }
        kept.extend_from_slice(piece);
        loop {
            match decoder.decode(&kept, target.as_deref_mut()) {
                Ok((used, decoded)) => {
                    kept.drain(..used);
                    match decoded {
                        Some(decoded) => found.push(decoded),
                        None => break,
                    }
                }
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}

fn cut<'a>(input: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = input;
    let mut pieces = Vec::new();
    for &cut in cuts {
        let (piece, after) = rest.split_at(cut.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn replies(found: Vec<Decoded>) -> Vec<Reply> {
    let reply = |decoded| match decoded {
        Decoded::Reply(reply) | Decoded::Push(reply) => reply,
        other => panic!("no target was given: {other:?}"),
    };
    found.into_iter().map(reply).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn replies_come_out_however_they_are_cut(sent in vec(reply(), 1..6), cuts in vec(0usize..30, 0..40)) {
        let input = sent.concat();
        let (expected, sound) = model(&input);
        prop_assert!(sound);
        prop_assert_eq!(expected.len(), sent.len());
        let (found, sound) = decode(&cut(&input, &cuts), None);
        prop_assert!(sound);
        prop_assert_eq!(replies(found), expected);
    }

    #[test]
    fn what_is_no_reply_is_refused_where_the_model_does(
        sent in vec(reply(), 1..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cuts in vec(0usize..30, 0..20),
    ) {
        let mut input = sent.concat();
        for (at, byte) in changes {
            let at = at.index(input.len());
            input[at] = byte;
        }
        let (expected, sound) = model(&input);
        let (found, ours) = decode(&cut(&input, &cuts), None);
        let found = replies(found);
        // A bad reply may be seen to be one before it is complete, which the model sees later.
        if sound && ours {
            prop_assert_eq!(found, expected);
        } else {
            prop_assert!(!ours);
            prop_assert_eq!(&found[..], &expected[..found.len()]);
        }
    }

    #[test]
    fn replies_beyond_the_limit_are_passed_over(
        sent in vec(reply(), 1..6),
        limit in 64usize..1500,
        cuts in vec(0usize..30, 0..40),
    ) {
        let input = sent.concat();
        let expected = sent.iter().zip(model(&input).0).map(|(sent, reply)| match reply {
            Reply::Push(_) => None,
            reply => Some(if cost(sent) > limit { Decoded::TooLarge } else { Decoded::Reply(reply) }),
        });
        let expected: Vec<_> = expected.collect();
        let (found, sound) = decode_with(Decoder::new(limit), &cut(&input, &cuts), None);
        prop_assert!(sound);
        let found = found.into_iter().map(|found| (!matches!(found, Decoded::Push(_))).then_some(found));
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn strings_at_the_top_go_to_the_target(
        sent in vec(reply(), 1..6),
        capacity in 0usize..50,
        cuts in vec(0usize..30, 0..40),
    ) {
        let input = sent.concat();
        let (expected, _) = model(&input);
        let mut target = vec![0; capacity];
        for (at, (one, expected)) in sent.iter().zip(expected).enumerate() {
            // The cuts that fall into this one.
            let cuts: Vec<usize> = cuts.iter().copied().skip(at % 7).collect();
            let (mut found, sound) = decode(&cut(one, &cuts), Some(&mut target));
            prop_assert!(sound);
            prop_assert_eq!(found.len(), 1);
            match (found.remove(0), expected) {
                (Decoded::Filled(len), Reply::Bulk(bytes)) => prop_assert_eq!(&target[..len], &bytes[..]),
                (Decoded::TooSmall(len), Reply::Bulk(bytes)) => {
                    prop_assert_eq!(len, bytes.len());
                    prop_assert!(len > capacity);
                }
                (Decoded::Reply(reply), expected) => {
                    prop_assert!(!matches!(reply, Reply::Bulk(_)));
                    prop_assert_eq!(reply, expected);
                }
                (Decoded::Push(reply), expected) => prop_assert_eq!(reply, expected),
                (found, expected) => prop_assert!(false, "{found:?} for {expected:?}"),
            }
        }
    }
}

#[test]
fn a_target_that_goes_away_gets_no_more() {
    let mut decoder = Decoder::new(BYTES_MAX);
    let mut target = [0; 8];
    assert_eq!(decoder.decode(b"$8\r\nabcd", Some(&mut target)), Ok((8, None)));
    assert_eq!(&target, b"abcd\0\0\0\0");
    let (used, decoded) = decoder.decode(b"efgh\r\n+OK\r\n", None).unwrap();
    assert_eq!((used, decoded), (6, Some(Decoded::TooSmall(8))));
    assert_eq!(
        decoder.decode(b"+OK\r\n", None),
        Ok((5, Some(Decoded::Reply(Reply::Simple(b"OK".to_vec())))))
    );
}

/// The most memory that this process has had, in bytes.
fn memory_max() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn nothing_is_kept_of_a_reply_beyond_the_limit() {
    const ELEMENTS: usize = 2_000_000;
    let before = memory_max();
    let mut decoder = Decoder::new(BYTES_MAX);
    let mut fed = |input: &[u8]| {
        let (used, decoded) = decoder.decode(input, None).unwrap();
        assert_eq!(used, input.len());
        decoded
    };
    let element = [&b"$100\r\n"[..], &[b'x'; 100], b"\r\n"].concat();
    assert_eq!(fed(format!("*{ELEMENTS}\r\n").as_bytes()), None);
    let piece = element.repeat(1000);
    let found: Vec<_> = (0..ELEMENTS / 1000).filter_map(|_| fed(&piece)).collect();
    assert_eq!(found, [Decoded::TooLarge]);
    assert_eq!(fed(b"$200000000\r\n"), None);
    assert!((0..2000).all(|_| fed(&[b'x'; 100_000]).is_none()));
    assert_eq!(fed(b"\r\n"), Some(Decoded::TooLarge));
    let more = memory_max() - before;
    assert!(more < 16 << 20, "{more} bytes of memory");
}

#[test]
fn replies_have_a_limit() {
    let refused = |input: &[u8]| Decoder::new(1000).decode(input, None).is_err();
    assert!(refused(&b"*1\r\n".repeat(100)));
    assert!(refused(&[b'+'; 70_000]));
    // A string that goes elsewhere takes nothing of ours.
    let mut target = [0; 2000];
    let reply = [&b"$2000\r\n"[..], &[b'x'; 2000], b"\r\n"].concat();
    let decoded = Decoder::new(1000).decode(&reply, Some(&mut target));
    assert_eq!(decoded, Ok((reply.len(), Some(Decoded::Filled(2000)))));
    // The limit is each reply's.
    let mut decoder = Decoder::new(1000);
    for _ in 0..3 {
        let reply = [&b"$900\r\n"[..], &[b'x'; 900], b"\r\n"].concat();
        assert!(matches!(decoder.decode(&reply, None), Ok((_, Some(Decoded::Reply(_))))));
    }
}
