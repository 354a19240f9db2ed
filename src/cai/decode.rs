//! Checks a dict's entries for a descriptor. For DLPack, entries that it has no words for are refused.
//!
//! The device is not in the dict: the caller asks the driver about the pointer.

use super::Fields;
use crate::dtype::{Dtype, Typestr};
use crate::error::{Error, Kind, Result};
use crate::layout::{Dims, Layout, Reach};
use crate::stream::{Ready, Stream, Thread};

/// What a dict says of pending work.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Version 3, or a stream is given: the entry means what the specification says.
    Stated(Ready),
    /// Version 0 to 2 without a stream: prior versions "made no statement about synchronization".
    Silent,
}

/// A dict, checked, but for its layout.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decoded {
    /// The version, 0 to 3.
    pub version: i64,
    /// The address of the first element; 0 where there is none.
    pub ptr: u64,
    /// The read-only flag.
    pub readonly: bool,
    /// The element type.
    pub dtype: Dtype,
    /// The bytes that the layout reaches.
    pub reach: Reach,
    /// The claim about pending work.
    pub claim: Claim,
}

/// How a dict's integers are read.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The thread that read it.
    pub here: Thread,
    /// The stream that its producer means where it names none, or 0; `None` for producers that keep to the
    /// specification.
    pub unnamed: Option<Stream>,
    /// Whether the caller says the stream, so that 0 and -1, which name none, need not be understood.
    pub declared: bool,
    /// Whether it is for a consumer of the same protocol, so that DLPack need not have a word for it.
    pub goes_on: bool,
    /// The type that the items are said to be, whatever the typestr makes of their bytes.
    pub dtype: Option<Dtype>,
}

impl Fields<'_> {
    /// Checks the entries for DLPack. `type_name`, one of [`Dtype::name`], says which element type it is where the typestr
    /// does not (`<V2`, `|V1`). The stream 2 is the calling thread's.
    ///
    /// The pointer is checked where [`Descriptor::new`](crate::Descriptor::new) gets it, with the layout and its reach.
    ///
    /// # Errors
    ///
    /// The entry that is malformed, or that DLPack has no word for: another byte order, a structured type, strides that
    /// are no whole elements. A `type_name` of another type than the typestr's.
    ///
    /// # Examples
    ///
    /// See [`cai`](crate::cai).
    pub fn decode(&self, type_name: Option<&str>) -> Result<(Decoded, Layout)> {
        let here = Thread::current();
        let dialect = Dialect { here, unnamed: None, declared: false, goes_on: false, dtype: None };
        let mut layout = Layout::EMPTY;
        let decoded = decode(self, dialect, || type_name.map(str::to_owned), &mut layout);
        let decoded = decoded.map_err(|error| match (error.kind(), type_name) {
            (Kind::DtypeAmbiguous, None) => {
                let got = format!("{:?} without a type_name", self.typestr);
                Error::new(Kind::DtypeAmbiguous, got)
            }
            _ => error,
        })?;
        if type_name.is_some() {
            // A typestr that is exact needed no name, and has not looked at it.
            Typestr::parse(self.typestr)?.resolve(self.typestr, type_name)?;
        }
        Ok((decoded, layout))
    }
}

/// Checks `fields`, whose shape and strides it puts into `layout`. `type_name` is asked for the name of the element
/// type where the typestr does not say which it is.
#[inline]
pub fn decode(
    fields: &Fields<'_>,
    Dialect { here, unnamed, declared, goes_on, dtype }: Dialect,
    type_name: impl FnOnce() -> Option<String>,
    layout: &mut Layout,
) -> Result<Decoded> {
    if !(0..=super::VERSION).contains(&fields.version) {
        return Err(Error::new(Kind::CaiVersion, fields.version.to_string()));
    }
    let (dtype, reach) =
        shared(fields, (dtype, type_name), layout).or_else(|error| match error.kind() {
            kind if goes_on && is_of_dlpacks(kind) => alone(fields, layout, error),
            _ => Err(error),
        })?;
    let claim = match (fields.stream, fields.version, unnamed) {
        (None | Some(0), super::VERSION, Some(stream)) => Claim::Stated(Ready::On(stream)),
        (None, 0..=2, _) => Claim::Silent,
        (Some(0 | -1), ..) if declared => Claim::Silent,
        (stream, ..) => Claim::Stated(Ready::from_cai(stream, here)?),
    };
    let (ptr, readonly) = fields.data;
    Ok(Decoded { version: fields.version, ptr, readonly, dtype, reach, claim })
}

/// The type and the reach of what both protocols have words for.
#[inline(always)]
fn shared(
    fields: &Fields<'_>,
    (said, type_name): (Option<Dtype>, impl FnOnce() -> Option<String>),
    layout: &mut Layout,
) -> Result<(Dtype, Reach)> {
    let dtype = match said {
        Some(said) if Typestr::has_bytes_of(fields.typestr, said) => said,
        _ => by_typestr(fields, type_name)?,
    };
    let strides = fields.strides.as_ref().map(Dims::as_slice);
    let reach = layout.set_bytes(fields.shape.as_slice(), strides, dtype.itemsize())?;
    Ok((dtype, reach))
}

#[inline(always)]
fn by_typestr(fields: &Fields<'_>, type_name: impl FnOnce() -> Option<String>) -> Result<Dtype> {
    let typestr = match Typestr::parse(fields.typestr) {
        Err(error) if !fields.structured || error.kind() != Kind::Dtype => return Err(error),
        _ if fields.structured => return Err(Error::at(Kind::Dtype, "descr", "a structured type")),
        typestr => typestr?,
    };
    match typestr {
        Typestr::Exact(dtype) => Ok(dtype),
        Typestr::Opaque(_) => typestr.resolve(fields.typestr, type_name().as_deref()),
    }
}

/// Whether it is DLPack that has no word for what is refused.
pub const fn is_of_dlpacks(kind: Kind) -> bool {
    matches!(kind, Kind::Dtype | Kind::BigEndian | Kind::DtypeAmbiguous | Kind::StrideNotMultiple)
}

/// The type and the reach of items that only this protocol has words for; anything else is refused as before.
#[cold]
fn alone(fields: &Fields<'_>, layout: &mut Layout, refused: Error) -> Result<(Dtype, Reach)> {
    let Some(itemsize) = Typestr::itemsize(fields.typestr) else { return Err(refused) };
    let strides = fields.strides.as_ref().map(Dims::as_slice);
    let reach = layout.set_items(fields.shape.as_slice(), strides, itemsize)?;
    Ok((Dtype::CAIS_ALONE, reach))
}
