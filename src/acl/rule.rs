//! What a user's rules come to: whether it may log in, with which passwords, and what it may do.

use super::{
    error::RuleError,
    selector::{Denied, Selector},
};
use crate::command::{
    KeyAccess,
    keys::CallKeys,
    table::{CommandId, Table},
};
use data_encoding::HEXLOWER;
use holdfast_resp::Args;
use sha2::{Digest, Sha256};

/// The SHA-256 of a password.
pub type PasswordHash = [u8; 32];

/// A user's permissions.
#[derive(Clone)]
pub struct Rules {
    enabled: bool,
    no_password: bool,
    skip_sanitize: bool,
    passwords: Vec<PasswordHash>,
    /// The first is the user's own, the others are those in parentheses.
    selectors: Vec<Selector>,
}

impl Rules {
    /// Of a new user, who may do nothing; `all_channels` is the option `acl-pubsub-default`.
    pub fn new(table: &'static Table, all_channels: bool) -> Self {
        Rules {
            enabled: false,
            no_password: false,
            skip_sanitize: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(table, all_channels)],
        }
    }

    /// Of the default user of a new server, who may do all.
    pub fn all(table: &'static Table) -> Self {
        let mut rules = Rules { enabled: true, no_password: true, ..Rules::new(table, true) };
        for rule in ["+@all", "~*"] {
            rules.selectors[0].apply(rule.as_bytes()).expect("a valid rule");
        }
        rules
    }

    fn table(&self) -> &'static Table {
        self.selectors[0].table()
    }

    /// Whether the user may log in.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether any password will do.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_unrestricted)
    }

    /// Changes the permissions as one rule says.
    pub fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.enabled = true,
            _ if is("off") => self.enabled = false,
            _ if is("skip-sanitize-payload") => self.skip_sanitize = true,
            _ if is("sanitize-payload") => self.skip_sanitize = false,
            _ if is("nopass") => {
                self.no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.no_password = false;
                self.passwords.clear();
            }
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', digits @ ..] => self.add_password(parse_hash(digits)?),
            [b'<', password @ ..] => self.remove_password(hash(password))?,
            [b'!', digits @ ..] => self.remove_password(parse_hash(digits)?)?,
            [b'(', inner @ .., b')'] => {
                let mut selector = Selector::new(self.table(), all_channels);
                for rule in inner.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => *self = Rules::new(self.table(), all_channels),
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    /// Sets or takes away the password of the option `requirepass`.
    pub fn set_password(&mut self, password: &str) {
        self.no_password = password.is_empty();
        self.passwords = if password.is_empty() { Vec::new() } else { vec![hash(password.as_bytes())] };
    }

    fn add_password(&mut self, password: PasswordHash) {
        if !self.passwords.contains(&password) {
            self.passwords.push(password);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, password: PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == password);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    /// Whether the user may log in with this password.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let password = hash(password);
        // In a time that tells nothing about where a difference is.
        let equals =
            |known: &PasswordHash| known.iter().zip(password).fold(0, |all, (x, y)| all | (x ^ y)) == 0;
        self.enabled && (self.no_password || self.passwords.iter().any(equals))
    }

    /// Checks a call.
    pub fn check(&self, id: CommandId, args: Args, keys: &CallKeys) -> Result<(), Denied> {
        let mut worst = Denied::Command;
        for selector in &self.selectors {
            match selector.check(id, args, keys) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Whether a call may read keys that it does not name.
    pub fn may_read_all_keys(&self, id: CommandId, args: Args) -> bool {
        let keys = CallKeys::default();
        self.selectors.iter().any(|s| s.may_read_all_keys() && s.check(id, args, &keys).is_ok())
    }

    /// Whether a call may use keys that it does not name in this way, all by the selector that allows the call.
    pub fn may_use_keys<'k>(
        &self,
        id: CommandId,
        args: Args,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        access: KeyAccess,
    ) -> bool {
        let named = CallKeys::default();
        let allows = |selector: &Selector| keys.clone().all(|key| selector.may_use_key(key, access));
        self.selectors.iter().any(|s| s.check(id, args, &named).is_ok() && allows(s))
    }

    /// Whether a channel may be used; a pattern of channels must be one of those in the rules, literally.
    pub fn may_use_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors.iter().any(|selector| selector.may_use_channel(channel, is_pattern))
    }

    /// The selectors, the user's own first.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// The words for what is no selector's.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            (self.enabled, "on"),
            (!self.enabled, "off"),
            (self.no_password, "nopass"),
            (self.skip_sanitize, "skip-sanitize-payload"),
            (!self.skip_sanitize, "sanitize-payload"),
        ];
        flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name)
    }

    /// The hashes of the passwords, in hexadecimal.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|hash| HEXLOWER.encode(hash))
    }

    /// All rules in their normal form, in which ACL LIST shows and ACL SAVE writes them.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self.flags().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.selectors[0].describe());
        parts.extend(self.selectors[1..].iter().map(|s| [b"(", &s.describe()[..], b")"].concat()));
        parts.join(&b' ')
    }
}

fn hash(password: &[u8]) -> PasswordHash {
    Sha256::digest(password).into()
}

fn parse_hash(digits: &[u8]) -> Result<PasswordHash, RuleError> {
    let bytes = HEXLOWER.decode(digits).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(RuleError::BadHash)
}

/// Joins rules in parentheses that came as several words; the error is the word that opens a parenthesis which is never
/// closed.
pub fn join_selectors<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        open = match open.take() {
            Some((start, mut rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                if word.ends_with(b")") {
                    rules.push(rule);
                    None
                } else {
                    Some((start, rule))
                }
            }
            None if word.starts_with(b"(") && !word.ends_with(b")") => Some((word, word.to_vec())),
            None => {
                rules.push(word.to_vec());
                None
            }
        };
    }
    match open {
        None => Ok(rules),
        Some((start, _)) => Err(start.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::ROWS;
    use holdfast_resp::OwnedArgs;

    fn rules(text: &str) -> Rules {
        let mut rules = Rules::new(&ROWS.table, false);
        for rule in join_selectors(text.split(' ').map(str::as_bytes)).unwrap() {
            rules.apply(&rule, false).unwrap_or_else(|e| panic!("{text}: {}", e.text()));
        }
        rules
    }

    fn describe(text: &str) -> String {
        String::from_utf8(rules(text).describe()).unwrap()
    }

    fn check(rules: &Rules, call: &str) -> Result<(), Denied> {
        let args: OwnedArgs = call.split(' ').collect();
        let crate::command::table::Lookup::Found(id) = ROWS.table.lookup(args.args()) else {
            panic!("{call}")
        };
        rules.check(id, args.args(), &CallKeys::default())
    }

    #[test]
    fn normal_form() {
        for (given, normal) in [
            ("reset", "off sanitize-payload resetchannels -@all"),
            ("on nopass +@all ~* &*", "on nopass sanitize-payload ~* &* +@all"),
            ("+GET -@Read +get", "off sanitize-payload resetchannels -@all -@read +get"),
            ("+client|id +client", "off sanitize-payload resetchannels -@all +client"),
            ("+client -client|kill", "off sanitize-payload resetchannels -@all +client -client|kill"),
            ("+select|0 +select|1", "off sanitize-payload resetchannels -@all +select|0 +select|1"),
            ("~a %R~b %rw~c %W~b %W~d", "off sanitize-payload ~a ~b ~c %W~d resetchannels -@all"),
            ("&a &b &a", "off sanitize-payload resetchannels &a &b -@all"),
            (
                "on (~x +get) ( %W~y +set )",
                "on sanitize-payload resetchannels -@all (~x resetchannels -@all +get) (%W~y resetchannels -@all +set)",
            ),
            (
                ">a skip-sanitize-payload",
                "off skip-sanitize-payload \
                 #ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb resetchannels -@all",
            ),
        ] {
            assert_eq!(describe(given), normal, "{given}");
            assert_eq!(describe(normal), normal, "{given}");
        }
    }

    #[test]
    fn mistakes() {
        for (given, error) in [
            ("nonsense", RuleError::Syntax),
            ("%~a", RuleError::Syntax),
            ("%RR~a", RuleError::Syntax),
            ("%R", RuleError::Syntax),
            ("+get|", RuleError::Syntax),
            ("~a b", RuleError::Syntax),
            ("+nope", RuleError::Unknown),
            ("-get|a", RuleError::Unknown),
            ("+client|nope", RuleError::Unknown),
            ("+@nope", RuleError::Unknown),
            ("+client|id|a", RuleError::FirstArgumentOfSubcommand),
            ("<never", RuleError::NoSuchPassword),
            ("#00", RuleError::BadHash),
            ("(~a +nope)", RuleError::Unknown),
        ] {
            assert_eq!(rules("reset").apply(given.as_bytes(), false), Err(error), "{given}");
        }
        assert_eq!(rules("~*").apply(b"~a", false), Err(RuleError::AfterAllKeys));
        assert_eq!(rules("&*").apply(b"&a", false), Err(RuleError::AfterAllChannels));
        let open = join_selectors([&b"on"[..], b"(~a", b"+get"].into_iter());
        assert_eq!(open, Err(b"(~a".to_vec()));
    }

    #[test]
    fn every_category_can_be_taken_alone() {
        for name in crate::command::Categories::NAMES {
            assert_eq!(
                describe(&format!("+@all -@{name}")),
                format!("off sanitize-payload resetchannels +@all -@{name}")
            );
        }
    }

    #[test]
    fn calls_are_checked_by_command_key_and_first_argument() {
        let some = rules("+@all -flushall -client|kill -select +select|0 ~k* %R~r* %W~w*");
        for (call, expected) in [
            ("get k1", Ok(())),
            ("get other", Err(Denied::Key(1))),
            ("get r1", Ok(())),
            ("set r1 v", Err(Denied::Key(1))),
            ("set w1 v", Ok(())),
            ("set w1 v get", Err(Denied::Key(1))),
            ("get w1", Err(Denied::Key(1))),
            ("bitfield r1 get u8 0 get u8 1", Ok(())),
            ("bitfield r1 get u8 0 set u8 1 1", Err(Denied::Key(1))),
            ("exists w1 r1", Ok(())),
            ("rename k1 x", Err(Denied::Key(2))),
            ("mset k1 v x v", Err(Denied::Key(3))),
            ("flushall", Err(Denied::Command)),
            ("client kill a:1", Err(Denied::Command)),
            ("client id", Ok(())),
            ("select 0", Ok(())),
            ("select 1", Err(Denied::Command)),
            ("hello 3", Ok(())),
        ] {
            assert_eq!(check(&some, call), expected, "{call}");
        }
    }

    #[test]
    fn one_selector_must_allow_all_of_a_call() {
        let two = rules("+get ~a (+set ~b)");
        assert_eq!(check(&two, "get a"), Ok(()));
        assert_eq!(check(&two, "set b 1"), Ok(()));
        assert_eq!(check(&two, "set a 1"), Err(Denied::Key(1)));
        assert_eq!(check(&two, "get b"), Err(Denied::Key(1)));
        assert_eq!(check(&two, "del a"), Err(Denied::Command));
        assert!(rules("(+@all ~* &*)").is_unrestricted() && !rules("+@all ~*").is_unrestricted());
    }

    #[test]
    fn passwords() {
        assert!(rules("on >a >b").accepts(b"b") && !rules("on >a").accepts(b"b"));
        assert!(!rules(">a").accepts(b"a"), "the user is off");
        assert!(rules("on nopass").accepts(b"anything") && !rules("on").accepts(b""));
        assert!(!rules("on nopass >a resetpass").accepts(b"a"));
    }
}
