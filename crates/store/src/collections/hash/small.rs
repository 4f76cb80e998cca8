//! Small hashes: one packed blob of `name, value` entries or, once a field had an expiry, `name, value, expiry`.

use holdfast_heap::{Arena, Full, Tx};

use super::{
    super::{
        object::{self, Encoding},
        packed::{Entries, Packed, Piece},
    },
    Field,
};

/// A small hash.
#[derive(Clone, Copy)]
pub(super) struct Small {
    packed: Packed,
    /// Whether each field has the entry for an expiry.
    expires: bool,
}

impl Small {
    pub fn of(arena: &Arena, obj: u64) -> Small {
        let expires = object::encoding(arena, obj) == Encoding::ListpackEx;
        Small { packed: Packed::at(obj + object::ROOT), expires }
    }

    /// The position of the field with this name.
    pub fn find(self, arena: &Arena, name: &Piece) -> Option<usize> {
        self.packed.find(arena, name, self.entries_per_field())
    }

    /// The field at a position.
    pub fn field(self, arena: &Arena, at: usize) -> Field<'_> {
        self.placed(arena, at).field
    }

    /// All fields in the order in which they were added.
    pub fn fields(self, arena: &Arena) -> Fields<'_> {
        self.fields_from(arena, 0)
    }

    /// Gives the field at a position, or a new one, this value and expiry (0: none).
    pub fn put(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        at: Option<usize>,
        name: &Piece,
        value: &Piece,
        expires: u64,
    ) -> Result<(), Full> {
        debug_assert!(self.expires || expires == 0);
        let insert = [*name, *value, Piece::int(expires as i64)];
        let insert = &insert[..self.entries_per_field()];
        match at {
            Some(at) => {
                let rest = self.placed(arena, at).len - name.encoded_len();
                self.packed.splice(arena, tx, at + name.encoded_len(), rest, &insert[1..])
            }
            None => self.packed.splice(arena, tx, self.entries(arena).len(), 0, insert),
        }
    }

    /// Bytes of the block to which it moves when these fields are set to these values; `None`: they have room where it is.
    pub fn grown_size<'f>(
        self,
        arena: &Arena,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Option<usize> {
        let grows = |(name, value): (&[u8], &[u8])| {
            let (name, value) = (Piece::new(name), Piece::new(value));
            let expiry = if self.expires { Piece::int(0).encoded_len() } else { 0 };
            let old = self.find(arena, &name).map_or(0, |at| self.placed(arena, at).len);
            (name.encoded_len() + value.encoded_len() + expiry).saturating_sub(old)
        };
        self.packed.grown_size(arena, fields.map(grows).sum())
    }

    /// Gives an empty hash fields, names and values in turn, which do not expire.
    pub fn fill(self, arena: &mut Arena, tx: &mut Tx, fields: &[Piece]) -> Result<(), Full> {
        debug_assert!(!self.expires && self.entries(arena).is_empty());
        self.packed.splice(arena, tx, 0, 0, fields)
    }

    /// Gives the field at a position another expiry (0: none).
    pub fn set_expiry(self, arena: &mut Arena, tx: &mut Tx, at: usize, expires: u64) -> Result<(), Full> {
        debug_assert!(self.expires);
        let (from, old) = Entries::from(self.entries(arena), at).nth(2).expect("the expiry of a field");
        let remove = old.encoded().len();
        self.packed.splice(arena, tx, from, remove, &[Piece::int(expires as i64)])
    }

    /// Removes the field at a position.
    pub fn remove(self, arena: &mut Arena, tx: &mut Tx, at: usize) {
        let len = self.placed(arena, at).len;
        self.packed.splice(arena, tx, at, len, &[]).expect("a blob that does not grow");
    }

    /// The hash with an entry for the expiry of each field.
    pub fn with_expiries(self, arena: &mut Arena, tx: &mut Tx, obj: u64) -> Result<Small, Full> {
        if self.expires {
            return Ok(self);
        }
        let old = self.entries(arena);
        let mut entries = Vec::with_capacity(old.len() * 3 / 2);
        for (index, (_, entry)) in Entries::new(old).enumerate() {
            entries.extend_from_slice(entry.encoded());
            if index % 2 == 1 {
                Piece::int(0).append_to(&mut entries);
            }
        }
        let len = old.len();
        self.packed.splice(arena, tx, 0, len, &[Piece::encoded(&entries)])?;
        object::set_encoding(arena, tx, obj, Encoding::ListpackEx);
        Ok(Small { expires: true, ..self })
    }

    /// Frees the blob.
    pub fn clear(self, arena: &mut Arena, tx: &mut Tx) {
        self.packed.clear(arena, tx);
    }

    fn entries_per_field(self) -> usize {
        if self.expires { 3 } else { 2 }
    }

    /// Checks the blob and returns the number of fields, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<u64, String> {
        self.packed.check(arena).map(|entries| entries / self.entries_per_field() as u64)
    }

    /// Bytes allocated for the blob.
    pub fn heap_bytes(self, arena: &Arena) -> u64 {
        self.packed.heap_bytes(arena)
    }

    /// The fields that are encoded in `entries`, which are this hash's or a copy of them.
    pub fn fields_of(self, entries: &[u8]) -> Fields<'_> {
        Fields { entries: Entries::new(entries), expires: self.expires }
    }

    /// The field at a position, and how long it is.
    fn placed(self, arena: &Arena, at: usize) -> Placed<'_> {
        self.fields_from(arena, at).next().expect("a position that was found")
    }

    fn fields_from(self, arena: &Arena, at: usize) -> Fields<'_> {
        Fields { entries: Entries::from(self.entries(arena), at), expires: self.expires }
    }

    /// All fields, encoded.
    pub fn entries(self, arena: &Arena) -> &[u8] {
        self.packed.bytes(arena)
    }
}

/// A field and where it is.
pub(super) struct Placed<'a> {
    pub at: usize,
    len: usize,
    pub field: Field<'a>,
}

/// The fields of a small hash.
pub(super) struct Fields<'a> {
    entries: Entries<'a>,
    expires: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        let (at, name) = self.entries.next()?;
        let mut next = || self.entries.next().expect("as many entries as a field has").1;
        let value = next().value();
        let expires = if self.expires { next().int().expect("an expiry is an integer") as u64 } else { 0 };
        let field = Field { name: name.value(), value, expires };
        Some(Placed { at, len: self.entries.position() - at, field })
    }
}
