//! What replicas send to each other, with what a leader's lease is counted by.

use crate::{
    Message,
    code::{Decoder, Encoder},
};
use bytes::Bytes;

/// What one replica sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// When it was sent, by the sender's clock: microseconds.
    pub(super) stamp: u64,
    /// The stamp of the last sign of life of a leader, if it is for that.
    pub(super) echo: u64,
    /// What it is about.
    pub message: Message,
}

impl Envelope {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        self.encode_to(&mut out);
        out.into_bytes()
    }

    /// Puts its bytes behind others.
    pub fn encode_to(&self, out: &mut Encoder) {
        out.u64(self.stamp).u64(self.echo).nested(|out| self.message.encode_to(out));
    }

    /// An envelope of these bytes, which are a part of `whole`, and that is kept as long as what the envelope brings; `None`: they are none.
    pub fn decode(bytes: &[u8], whole: &Bytes) -> Option<Envelope> {
        let mut bytes = Decoder(bytes);
        let (stamp, echo) = (bytes.u64().ok()?, bytes.u64().ok()?);
        let message = Message::decode_part(bytes.bytes().ok()?, whole)?;
        bytes.end().ok().map(|()| Envelope { stamp, echo, message })
    }
}
