//! Redis's patterns: `*`, `?`, `[abc]`, `[^a-z]` and `\` before a byte that stands for itself.

/// Stars that a pattern may have; with more it matches nothing, as in Redis, where they take stack.
const STARS_MAX: usize = 1000;

/// Whether all of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte)
}

/// Whether all of `text` matches `pattern`, in any case.
pub fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// One star is tried at a time: if what follows the last one does not match, it takes one byte more. Earlier stars need
/// no second look, so the time is at most the product of the lengths, whatever a client makes up.
fn matches_with(pattern: &[u8], text: &[u8], fold: fn(u8) -> u8) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut stars = 0;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if star.is_none_or(|(after, _)| after + 1 != p) {
                stars += 1;
            }
            if stars > STARS_MAX {
                return false;
            }
            star = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        let step = text.get(t).and_then(|&byte| match_one(&pattern[p..], byte, fold));
        match (step, &mut star) {
            (Some(length), _) => {
                p += length;
                t += 1;
            }
            (None, Some((after, from))) if *from < text.len() => {
                *from += 1;
                (p, t) = (*after, *from);
            }
            _ => return false,
        }
    }
}

/// If the first element of `pattern`, which is no star, matches `byte`: the element's length.
fn match_one(pattern: &[u8], byte: u8, fold: fn(u8) -> u8) -> Option<usize> {
    let (length, matches) = match *pattern {
        [] => return None,
        [b'?', ..] => (1, true),
        [b'[', ref class @ ..] => {
            let (length, matches) = match_class(class, byte, fold);
            (1 + length, matches)
        }
        [b'\\', escaped, ..] => (2, fold(escaped) == fold(byte)),
        [plain, ..] => (1, fold(plain) == fold(byte)),
    };
    matches.then_some(length)
}

/// The length of a class, up to and with its `]`, which may be missing at the end; and whether it has `byte`.
fn match_class(class: &[u8], byte: u8, fold: fn(u8) -> u8) -> (usize, bool) {
    let byte = fold(byte);
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    while at < class.len() {
        match class[at..] {
            [b']', ..] => return (at + 1, found != negated),
            [b'\\', escaped, ..] => {
                found |= fold(escaped) == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (low.min(high), low.max(high));
                found |= (fold(low)..=fold(high)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= fold(plain) == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (at, found != negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abd", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*a*b*c*", "xxaxxcxxbxx", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[\\]]", "]", true),
            ("[ab", "a", true),
            ("a\\", "a\\", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_any_case(b"MAX[A-Z]*", b"maxmemory"));
    }

    #[test]
    fn too_many_stars_match_nothing() {
        for (pairs, expected) in [(1000, true), (1001, false)] {
            assert_eq!(matches("*?".repeat(pairs).as_bytes(), "a".repeat(2000).as_bytes()), expected);
        }
        assert!(matches("*".repeat(5000).as_bytes(), b"a"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        assert!(!matches(("a*".repeat(500) + "c").as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
