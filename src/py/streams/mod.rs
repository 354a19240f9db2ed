//! Streams as Python names them: what `stream=` may be, what keeps a stream alive, and where libraries work now.

pub(crate) mod argument;
mod by_function;
mod context;
pub(crate) mod current;
mod exporter;
pub(crate) mod imported;
mod keeper;
pub(crate) mod known_stream;
mod name;
mod object;
mod objects_by_handle;
pub(crate) mod pools;
mod reference;
mod unnamed;
mod voucher;
mod wait;

pub(crate) use argument::StreamArgument;
pub(crate) use exporter::{dict_of, pending, ready_by};
pub(crate) use known_stream::{KnownStream, KnownStreams};
pub(crate) use name::StreamName;
pub(crate) use object::handle_of;
pub(crate) use reference::{DictExporter, StreamRef};
pub(crate) use unnamed::Unnamed;
pub(crate) use voucher::unasked;
pub(crate) use wait::{WaitReason, places_of, wait_for_all};
