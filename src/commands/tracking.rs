//! CLIENT TRACKING, CACHING, GETREDIR, TRACKINGINFO: handlers of rows that [`super::clients`] has.

use crate::{clients::client::flag, commands::prelude::*, push::tracking::Mode};
use std::collections::BTreeSet;

const REDIRECTED_TWICE: Stop = Stop::new("ERR A client can only redirect to a single other client");
const NO_CLIENT: Stop = Stop::new("ERR The client ID you want redirect to does not exist");
const PREFIX_WITHOUT_BCAST: Stop = Stop::new("ERR PREFIX option requires BCAST mode to be enabled");
const OTHER_MODE: Stop = Stop::new(
    "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
const OPT_WITH_BCAST: Stop = Stop::new("ERR OPTIN and OPTOUT are not compatible with BCAST");
const IN_AND_OUT: Stop = Stop::new("ERR You can't specify both OPTIN mode and OPTOUT mode");
const OTHER_OPT: Stop = Stop::new(
    "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
     different mode.",
);
const CACHING_WITHOUT_TRACKING: Stop = Stop::new(
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
);
const YES_WITHOUT_OPTIN: Stop =
    Stop::new("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
const NO_WITHOUT_OPTOUT: Stop =
    Stop::new("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");

/// CLIENT TRACKING.
pub fn tracking(call: &mut Call) -> Answer {
    let mode = parse(call)?;
    let server = call.server();
    if call.is(2, "on") {
        let mode = compatible(call, mode)?;
        server.push.tracking.begin(&call.session.client, &mode);
        call.session.tracking = Some(mode);
        server.push.want_changes(&server.store);
    } else if call.is(2, "off") {
        call.session.stop_tracking(server);
    } else {
        return Err(SYNTAX);
    }
    call.reply_ok()
}

fn parse(call: &Call) -> Result<Mode, Stop> {
    let mut mode = Mode::default();
    let mut at = 3;
    while at < call.args.len() {
        let has_value = at + 1 < call.args.len();
        if call.is(at, "redirect") && has_value {
            at += 1;
            if mode.redirect != 0 {
                return Err(REDIRECTED_TWICE);
            }
            let id = u64::try_from(call.int(at)?).ok();
            mode.redirect = id.filter(|id| call.server().clients.get(*id).is_some()).ok_or(NO_CLIENT)?;
        } else if call.is(at, "bcast") {
            mode.bcast = true;
        } else if call.is(at, "optin") {
            mode.optin = true;
        } else if call.is(at, "optout") {
            mode.optout = true;
        } else if call.is(at, "noloop") {
            mode.noloop = true;
        } else if call.is(at, "prefix") && has_value {
            at += 1;
            let prefix = call.args.at(at);
            if let Some(other) = mode.prefixes.iter().find(|other| overlap(other, prefix)) {
                return Err(overlaps(other, prefix, "another provided prefix"));
            }
            mode.prefixes.insert(prefix.to_vec());
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    Ok(mode)
}

/// Whether some key begins with both.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn overlaps(prefix: &[u8], other: &[u8], what: &str) -> Stop {
    let why = "Prefixes for a single client must not overlap.";
    [b"ERR Prefix '", prefix, b"' overlaps with ", what.as_bytes(), b" '", other, b"'. ", why.as_bytes()]
        .concat()
        .into()
}

/// The new mode, if it goes with itself and with the old one, whose prefixes it keeps.
fn compatible(call: &Call, mut mode: Mode) -> Result<Mode, Stop> {
    if !mode.bcast && !mode.prefixes.is_empty() {
        return Err(PREFIX_WITHOUT_BCAST);
    }
    let old = call.session.tracking.as_ref();
    if old.is_some_and(|old| old.bcast != mode.bcast) {
        return Err(OTHER_MODE);
    }
    if mode.bcast && (mode.optin || mode.optout) {
        return Err(OPT_WITH_BCAST);
    }
    if mode.optin && mode.optout {
        return Err(IN_AND_OUT);
    }
    if old.is_some_and(|old| mode.optin && old.optout || mode.optout && old.optin) {
        return Err(OTHER_OPT);
    }
    if mode.bcast {
        let kept: BTreeSet<Vec<u8>> = old.map(|old| old.prefixes.clone()).unwrap_or_default();
        for prefix in &mode.prefixes {
            if let Some(other) = kept.iter().find(|other| overlap(other, prefix)) {
                return Err(overlaps(prefix, other, "an existing prefix"));
            }
        }
        if mode.prefixes.is_empty() {
            // All keys.
            mode.prefixes.insert(Vec::new());
        }
        mode.prefixes.extend(kept);
    }
    Ok(mode)
}

/// CLIENT CACHING.
pub fn caching(call: &mut Call) -> Answer {
    let (yes, no) = (call.is(2, "yes"), call.is(2, "no"));
    let mode = call.session.tracking.as_mut().ok_or(CACHING_WITHOUT_TRACKING)?;
    match (yes, no) {
        (true, _) if !mode.optin => return Err(YES_WITHOUT_OPTIN),
        (_, true) if !mode.optout => return Err(NO_WITHOUT_OPTOUT),
        (false, false) => return Err(SYNTAX),
        _ => mode.caching = true,
    }
    call.reply_ok()
}

/// CLIENT GETREDIR.
pub fn getredir(call: &mut Call) -> Answer {
    call.reply_int(redirect(call))
}

fn redirect(call: &Call) -> i64 {
    call.session.tracking.as_ref().map_or(-1, |mode| mode.redirect as i64)
}

/// CLIENT TRACKINGINFO.
pub fn trackinginfo(call: &mut Call) -> Answer {
    let mode = call.session.tracking.as_ref();
    let is_broken = call.session.client.has_flag(flag::BROKEN_REDIRECT);
    let has = |f: fn(&Mode) -> bool| mode.is_some_and(f);
    let flags = [
        (mode.is_some(), "on"),
        (mode.is_none(), "off"),
        (has(|mode| mode.bcast), "bcast"),
        (has(|mode| mode.optin), "optin"),
        (has(|mode| mode.optin && mode.caching), "caching-yes"),
        (has(|mode| mode.optout), "optout"),
        (has(|mode| mode.optout && mode.caching), "caching-no"),
        (has(|mode| mode.noloop), "noloop"),
        (is_broken, "broken_redirect"),
    ];
    let shown = flags.iter().filter(|(on, _)| *on);
    call.out.map(3);
    call.out.key("flags").set(shown.clone().count());
    shown.for_each(|(_, name)| call.out.bulk(name));
    let redirect = redirect(call);
    call.out.key("redirect").int(redirect);
    call.out.bulk("prefixes");
    let prefixes = call.session.tracking.as_ref().map(|mode| &mode.prefixes);
    call.out.array(prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| call.out.bulk(prefix));
    Ok(Done)
}
