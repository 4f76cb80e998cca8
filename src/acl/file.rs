//! Where users come from: the file of the option `aclfile`, or `user` lines of the configuration file.

use super::{Acl, Rules, User, error::RuleError, has_space, rule::join_selectors};
use crate::{
    admin::log::log,
    command::table::Table,
    config::{Config, Opt, file::replace},
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The option `aclfile`, relative to the data folder; `None`: there is none.
fn path(config: &Config) -> Option<PathBuf> {
    let name = config.text(Opt::AclFile);
    (!name.is_empty()).then(|| Path::new(&config.text(Opt::Dir)).join(name))
}

/// Whether users are in a file of their own.
pub fn has_file(config: &Config) -> bool {
    !config.text(Opt::AclFile).is_empty()
}

/// Whether new users may use all channels.
pub fn all_channels(config: &Config) -> bool {
    config.choice(Opt::AclPubsubDefault) == "allchannels"
}

/// Makes the users that the configuration names; the error says why they cannot be made.
pub fn load_at_start(acl: &Acl, config: &Config) -> Result<(), String> {
    let lines = config.users();
    match path(config) {
        None => load_lines(acl, &lines, all_channels(config)),
        Some(_) if !lines.is_empty() => {
            Err("users are in the configuration file and in an ACL file ('aclfile'): this \
             leads to mistakes and security holes; use one of both"
                .into())
        }
        Some(path) => {
            acl.replace(read(acl.table, &path, all_channels(config))?);
            check_password(acl, config, &path)
        }
    }
}

/// The users of an ACL file take the place of what `requirepass` says, as in Redis. That must not leave a server open that
/// somebody has meant to protect.
fn check_password(acl: &Acl, config: &Config, path: &Path) -> Result<(), String> {
    if config.text(Opt::RequirePass).is_empty() {
        return Ok(());
    }
    let path = path.display();
    if !acl.requires_auth() {
        return Err(format!(
            "'requirepass' has no effect beside 'aclfile', and in {path} the user 'default' needs no password: give it one \
             there (user default on >PASSWORD ~* &* +@all), or take one of both options away"
        ));
    }
    log!(Warning, "option 'requirepass' has no effect: the users are those of the ACL file {path}");
    Ok(())
}

/// ACL LOAD: replaces all users by those of the file. Returns the names of those that are gone.
pub fn load(acl: &Acl, config: &Config) -> Result<Vec<Vec<u8>>, String> {
    let path = path(config).expect("checked by the caller");
    Ok(acl.replace(read(acl.table, &path, all_channels(config))?))
}

/// ACL SAVE: writes all users to the file.
pub fn save(acl: &Acl, config: &Config) -> io::Result<()> {
    let path = path(config).expect("checked by the caller");
    let mut text = Vec::new();
    for line in lines(acl) {
        text.extend_from_slice(&line);
        text.push(b'\n');
    }
    replace(&path, &text)
}

/// All users as lines of a file.
pub fn lines(acl: &Acl) -> Vec<Vec<u8>> {
    let line = |user: Arc<User>| [b"user ", &user.name[..], b" ", &user.rules().describe()].concat();
    acl.all().into_iter().map(line).collect()
}

/// Makes the users of the `user` lines in the configuration file.
fn load_lines(acl: &Acl, lines: &[Vec<Vec<u8>>], all_channels: bool) -> Result<(), String> {
    let mut seen = Vec::new();
    for line in lines {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (name, words) = line.split_first().ok_or("a 'user' line has no name")?;
        if has_space(name) {
            return Err("Spaces not allowed in ACL usernames".into());
        }
        if seen.contains(&name) {
            return Err(format!(
                "user '{}': Duplicate user found. A user can only be defined once in config files",
                shown(name)
            ));
        }
        seen.push(name);
        let reset: &[u8] = b"reset";
        let words = std::iter::once(reset).chain(words.iter().map(Vec::as_slice));
        acl.set_user(name, words, all_channels)
            .map_err(|error| format!("user '{}': {}", shown(name), shown(&error)))?;
        if acl.get(name).is_some_and(|user| !user.rules().is_enabled()) {
            log!(Notice, "The user '{}' is disabled: there is no 'on' among its rules", shown(name));
        }
    }
    Ok(())
}

/// Reads an ACL file: `user NAME RULE …` lines, and blank ones. The error lists everything that is wrong.
fn read(table: &'static Table, path: &Path, all_channels: bool) -> Result<BTreeMap<Vec<u8>, Rules>, String> {
    let shown = path.display();
    let text = fs::read(path).map_err(|e| format!("Error loading ACLs, opening file '{shown}': {}", e))?;
    let mut users = BTreeMap::new();
    let mut errors = String::new();
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let at = format!("{shown}:{}", number + 1);
        let mut words = line.split(|byte| b" \t\r".contains(byte)).filter(|word| !word.is_empty());
        let name = match (words.next(), words.next()) {
            (None, _) => continue,
            (Some(b"user"), Some(name)) => name,
            _ => {
                errors += &format!("{at} should start with user keyword followed by the username. ");
                continue;
            }
        };
        let name_shown = String::from_utf8_lossy(name);
        if has_space(name) {
            errors += &format!("'{at}: username '{name_shown}' contains invalid characters. ");
            continue;
        }
        if users.contains_key(name) {
            errors += &format!("WARNING: Duplicate user '{name_shown}' found on line {}. ", number + 1);
            continue;
        }
        let mut rules = Rules::new(table, all_channels);
        match join_selectors(words) {
            Err(_) => errors += &format!("{at}: Unmatched parenthesis in selector definition."),
            Ok(changes) => apply_all(&mut rules, &changes, all_channels, &at, &mut errors),
        }
        users.insert(name.to_vec(), rules);
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors += "WARNING: ACL errors detected, no change to the previously active ACL rules was performed";
    Err(errors)
}

/// Of mistakes that may be about a password only the first is named, and not shown.
fn apply_all(rules: &mut Rules, changes: &[Vec<u8>], all_channels: bool, at: &str, errors: &mut String) {
    let mut named = false;
    for change in changes {
        match rules.apply(change, all_channels) {
            Ok(()) => {}
            Err(error @ RuleError::Unknown) => {
                let change = String::from_utf8_lossy(change);
                *errors += &format!("{at}: Error in applying operation '{change}': {}. ", error.text());
            }
            Err(error) if !named => {
                *errors += &format!("{at}: {}. ", error.text());
                named = true;
            }
            Err(_) => {}
        }
    }
}
