//! Why a rule of a user is refused.

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It is no rule, or a pattern holds a blank.
    Syntax,
    /// There is no such command or category.
    Unknown,
    /// A pattern of keys where all are allowed.
    AfterAllKeys,
    /// A pattern of channels where all are allowed.
    AfterAllChannels,
    /// The password to be taken away is none.
    NoSuchPassword,
    /// Not 64 hexadecimal digits.
    BadHash,
    /// `+container|subcommand|argument`.
    FirstArgumentOfSubcommand,
}

impl RuleError {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                 Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        }
    }
}
