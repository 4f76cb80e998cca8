//! What the families of commands are written with: rows, and the call, transaction and replies of their handlers.

pub use crate::{
    command::{
        Categories, Command, Flags, KeyAccess, KeySpec,
        error::{SYNTAX, Stop},
    },
    exec::{
        answer::{
            Answer,
            Outcome::{self, *},
        },
        call::{Call, wrong_arity},
        handler::{
            Handler::{self, *},
            Row,
        },
        uses,
    },
    push::notify::Class,
};
pub use holdfast_resp::{Args, Writer};
pub use holdfast_store::{Txn, Use};
