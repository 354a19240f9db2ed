//! Checks a dict's entries and turns them into the parts of a descriptor. A dict does not name its device: the caller
//! asks the driver about the pointer.

use super::Fields;
use crate::dtype::{Dtype, Typestr};
use crate::error::{Error, Kind, Result};
use crate::layout::{Dims, Layout, Reach};
use crate::stream::{Ready, Stream, Thread};

/// What a dict says about pending work.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The dict says what is pending: nothing, or work on a stream. [`Fields::decode`] returns this for a dict of
    /// version 3, and for an older dict that names a stream.
    Stated(Ready),
    /// The dict does not say whether work is pending. [`Fields::decode`] returns this for a dict of version 0 to 2 that
    /// names no stream: versions before 3 "made no statement about synchronization".
    Silent,
}

/// What [`Fields::decode`] reads from a dict, besides the layout.
///
/// # Examples
///
/// See [`cai`](crate::cai).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decoded {
    /// The version, 0 to 3.
    pub version: i64,
    /// The address of the first element, as the dict has it. [`Descriptor::new`](crate::Descriptor::new) checks it.
    pub ptr: u64,
    /// The read-only flag.
    pub readonly: bool,
    /// The element type.
    pub dtype: Dtype,
    /// The bytes that the layout reaches, below and above `ptr`.
    pub reach: Reach,
    /// What the dict says about pending work.
    pub claim: Claim,
}

/// How to read a dict's stream and element type.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// The thread that reads the dict.
    pub here: Thread,
    /// The stream that the producer means by a dict of version 3 without a stream, or with stream 0. `None` for a
    /// producer that follows the specification.
    pub unnamed: Option<Stream>,
    /// Whether to accept a stream of 0 or -1 in the dict.
    pub declared: bool,
    /// Whether to accept an array whose element type or strides DLPack cannot express, if the typestr gives an item
    /// size. [`Decoded::dtype`] is then [`Dtype::CAIS_ALONE`].
    pub goes_on: bool,
    /// The element type, if the caller knows it. Ignored if the typestr has another item size or byte order.
    pub dtype: Option<Dtype>,
}

impl Fields<'_> {
    /// Checks the entries for a consumer of DLPack. Some typestrs (`<V2`, `|V1`) give only a size. For such a typestr
    /// `type_name` must name the element type, as [`Dtype::name`] does. Stream 2 is the calling thread's default
    /// stream.
    ///
    /// [`Descriptor::new`](crate::Descriptor::new) checks the pointer together with the layout and its reach.
    ///
    /// # Errors
    ///
    /// A malformed entry, such as the stream 0, or an entry that DLPack cannot express: another byte order, a
    /// structured type, a stride that is not a whole number of elements. Also a `type_name` that is needed and missing,
    /// is unknown, or contradicts the typestr.
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
            // If the typestr names its type, `decode` has not called its `type_name`, so check `type_name` here.
            Typestr::parse(self.typestr)?.resolve(self.typestr, type_name)?;
        }
        Ok((decoded, layout))
    }
}

/// Checks `fields`, and writes shape and strides into `layout`, which is unusable after an error. Calls `type_name`
/// only if neither `dtype` nor the typestr gives the element type.
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
        shared(fields, dtype, type_name, layout).or_else(|error| match error.kind() {
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

/// Fails if DLPack cannot express the array. `said` is [`Dialect::dtype`].
#[inline(always)]
fn shared(
    fields: &Fields<'_>,
    said: Option<Dtype>,
    type_name: impl FnOnce() -> Option<String>,
    layout: &mut Layout,
) -> Result<(Dtype, Reach)> {
    let dtype = match said {
        Some(said) if Typestr::has_bytes_of(fields.typestr, said) => said,
        _ => by_typestr(fields, type_name)?,
    };
    let strides = fields.strides.as_ref().map(Dims::as_slice);
    let reach = laid_out(fields.shape.as_slice(), strides, dtype, layout)?;
    Ok((dtype, reach))
}

/// Checks the shape, and the strides in bytes, for elements of `dtype`, and writes both into `layout`.
#[inline(always)]
pub fn laid_out(
    shape: &[i64],
    strides: Option<&[i64]>,
    dtype: Dtype,
    layout: &mut Layout,
) -> Result<Reach> {
    layout.set_bytes(shape, strides, dtype.itemsize())
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

/// Whether an error of this kind means only that DLPack cannot express the array. Consumers of the CUDA Array Interface
/// can still get such an array.
pub const fn is_of_dlpacks(kind: Kind) -> bool {
    matches!(kind, Kind::Dtype | Kind::BigEndian | Kind::DtypeAmbiguous | Kind::StrideNotMultiple)
}

/// Reads an array's items as bytes, since only CAI can express the array. If the typestr gives no item size, returns
/// the error `refused`.
#[cold]
fn alone(fields: &Fields<'_>, layout: &mut Layout, refused: Error) -> Result<(Dtype, Reach)> {
    let Some(itemsize) = Typestr::itemsize(fields.typestr) else { return Err(refused) };
    let strides = fields.strides.as_ref().map(Dims::as_slice);
    let reach = layout.set_items(fields.shape.as_slice(), strides, itemsize)?;
    Ok((Dtype::CAIS_ALONE, reach))
}
