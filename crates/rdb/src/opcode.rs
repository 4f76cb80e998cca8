//! What a record of a file begins with that is no key.

pub(crate) const SLOT_IMPORT: u8 = 243;
pub(crate) const SLOT_INFO: u8 = 244;
pub(crate) const LIBRARY: u8 = 245;
pub(crate) const EARLY_LIBRARY: u8 = 246;
pub(crate) const MODULE_AUX: u8 = 247;
pub(crate) const IDLE: u8 = 248;
pub(crate) const FREQUENCY: u8 = 249;
pub(crate) const AUX: u8 = 250;
pub(crate) const SIZES: u8 = 251;
pub(crate) const EXPIRES_MS: u8 = 252;
pub(crate) const EXPIRES_S: u8 = 253;
pub(crate) const DATABASE: u8 = 254;
pub(crate) const END: u8 = 255;
