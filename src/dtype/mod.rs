//! Element types: one table from `DLDataType` to typestr and back. It needs no feature, no Python and no driver.
//!
//! ```
//! use cai_bridge::dtype::{Dtype, Typestr};
//!
//! // From a typestr to DLPack's code, bits and lanes, and back.
//! let Typestr::Exact(float) = Typestr::parse("<f4")? else { panic!() };
//! assert_eq!((float.code(), float.bits(), float.lanes()), (2, 32, 1));
//! assert_eq!(Dtype::from_dlpack(2, 32, 1)?.typestr(), "<f4");
//!
//! // NumPy has no letter for bfloat16, so the caller must name the type.
//! assert_eq!(Dtype::from_dlpack(4, 16, 1)?.typestr(), "<V2");
//! assert_eq!(Typestr::parse("<V2")?.resolve("<V2", Some("bfloat16"))?.name(), "bfloat16");
//!
//! let refused = Typestr::parse(">f4").unwrap_err();
//! assert_eq!(refused.kind(), cai_bridge::ErrorKind::BigEndian);
//! # Ok::<(), cai_bridge::Error>(())
//! ```
//! A type that both protocols have is a row of `tests/data/dtype.toml`; `table.rs` is generated from that file. The
//! typestr is that of [NumPy's array interface](https://numpy.org/doc/stable/reference/arrays.interface.html). NumPy
//! has no letters for bfloat16 and the 8-bit floats. They travel as `<V2` and `|V1`, as PyTorch and CuPy export them.
//! The bridge never guesses which type such a typestr means: the object or the caller must name it.
//!
//! Only DLPack has elements narrower than a byte. Only the CUDA Array Interface has dates, structured types and the
//! other byte order. Such types pass unchanged within their protocol. The bridge refuses them for the other protocol.

mod table;
mod typestr;

pub use typestr::Typestr;

use std::fmt;

use crate::error::{Error, Kind, Result};
use table::{Row, TABLE, row};

/// The index of a type that only DLPack has. In [`PLACES`], the index of no row.
const NONE: u8 = u8::MAX;

const CAIS: u8 = NONE - 1;

const DLPACKS_ALONE: Row = row("a type that only DLPack has", 0, 0, "|V0");

const CAIS_ALONE: Row = row("a type that only the CUDA Array Interface has", 1, 8, "|V0");

/// The index of each row, by code and [`width`].
const PLACES: [[u8; 8]; 15] = {
    let mut places = [[NONE; 8]; 15];
    let mut at: u8 = 0;
    while (at as usize) < TABLE.len() {
        let row = &TABLE[at as usize];
        places[row.code as usize][width(row.bits)] = at;
        at += 1;
    }
    places
};

/// A number below 8, which differs between all sizes that one code has in the table.
const fn width(bits: u8) -> usize {
    bits.trailing_zeros() as usize & 7
}

/// An element type with DLPack's lanes.
///
/// # Examples
///
/// ```
/// use cai_bridge::Dtype;
///
/// let half = Dtype::from_name("float16").unwrap();
/// assert_eq!((half.itemsize(), half.typestr()), (2, "<f2"));
/// assert_eq!((half.code(), half.bits(), half.lanes()), (2, 16, 1));
/// assert!(half.is_inexact() && !half.is_complex());
///
/// let pairs = Dtype::from_dlpack(2, 16, 2)?; // lanes of two
/// assert_eq!((pairs.name(), pairs.element_size()), ("float16", 4));
/// assert!(Dtype::all().any(|dtype| dtype.name() == "bfloat16"));
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Dtype {
    /// The row's index, [`NONE`] or [`CAIS`].
    at: u8,
    code: u8,
    bits: u8,
    padded: bool,
    lanes: u16,
}

impl Dtype {
    pub(crate) const FIRST: Self = Self::of_row(0);

    /// One byte of an array whose items or strides DLPack cannot express. The bridge describes such an array by the
    /// bytes of its items, with one dimension more.
    #[doc(hidden)]
    pub const CAIS_ALONE: Self = Self { at: CAIS, code: 1, bits: 8, padded: false, lanes: 1 };

    const fn of_row(at: u8) -> Self {
        let row = &TABLE[at as usize];
        Self { at, code: row.code, bits: row.bits, padded: false, lanes: 1 }
    }

    /// The type for DLPack's `(code, bits, lanes)`. Fails for 0 lanes, and for a type that the CUDA Array Interface
    /// lacks.
    #[inline(always)]
    pub fn from_dlpack(code: u8, bits: u8, lanes: u16) -> Result<Self> {
        let dtype = Self::of_dlpack(code, bits, lanes)?;
        dtype.check_shared()?;
        Ok(dtype)
    }

    /// The type for DLPack's `(code, bits, lanes)`, also if only DLPack has it. Fails for 0 bits or 0 lanes.
    #[doc(hidden)]
    #[inline(always)]
    pub fn of_dlpack(code: u8, bits: u8, lanes: u16) -> Result<Self> {
        if lanes == 0 {
            return Err(Error::new(Kind::Lanes, "0"));
        }
        let at = PLACES.get(usize::from(code)).map_or(NONE, |places| places[width(bits)]);
        if at != NONE && TABLE[usize::from(at)].bits == bits {
            return Ok(Self { at, code, bits, padded: false, lanes });
        }
        let alone = Self { at: NONE, code, bits, padded: false, lanes };
        if bits == 0 { Err(alone.unshared()) } else { Ok(alone) }
    }

    /// Whether both protocols have the type.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn is_shared(self) -> bool {
        self.at < CAIS
    }

    #[doc(hidden)]
    #[inline(always)]
    pub const fn is_cais_alone(self) -> bool {
        self.at == CAIS
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn check_shared(self) -> Result<()> {
        if self.is_shared() { Ok(()) } else { Err(self.unshared()) }
    }

    #[cold]
    fn unshared(self) -> Error {
        let Self { code, bits, lanes, .. } = self;
        let kind = if bits.is_multiple_of(8) { Kind::Dtype } else { Kind::SubByte };
        Error::new(kind, format!("DLDataType(code={code}, bits={bits}, lanes={lanes})"))
    }

    /// If `padded`, each lane narrower than a byte fills a byte of its own. DLPack 1.1 has a flag for such lanes.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_padding(mut self, padded: bool) -> Self {
        self.padded = padded && self.bits < 8;
        self
    }

    #[doc(hidden)]
    pub const fn is_padded(self) -> bool {
        self.padded
    }

    /// Whether an element with all lanes is not a whole number of bytes. DLPack packs such elements.
    #[doc(hidden)]
    pub const fn is_packed(self) -> bool {
        !self.element_bits().is_multiple_of(8)
    }

    /// The size of `elements` elements in bytes, rounded up; `u64::MAX` if the size does not fit in a `u64`.
    #[doc(hidden)]
    pub fn bytes_of(self, elements: u64) -> u64 {
        let bits = u128::from(elements) * u128::from(self.element_bits());
        u64::try_from(bits.div_ceil(8)).unwrap_or(u64::MAX)
    }

    /// The distance of `elements` elements in bytes. `None` if that is not a whole number, or does not fit in an `i64`.
    #[cfg(feature = "arrays")]
    pub(crate) fn byte_offset(self, elements: i64) -> Option<i64> {
        let bits = i128::from(elements) * i128::from(self.element_bits());
        if bits % 8 == 0 { i64::try_from(bits / 8).ok() } else { None }
    }

    /// The size of an element in bits, including all its lanes. A padded lane counts as 8 bits.
    #[doc(hidden)]
    pub const fn element_bits(self) -> u64 {
        (if self.padded { 8 } else { self.bits as u64 }) * self.lanes as u64
    }

    /// The element type with this name, such as `bfloat16`. `None` if [`Self::all`] has no type with the name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::find(|row| row.name == name)
    }

    #[doc(hidden)]
    pub const COUNT: usize = TABLE.len();

    /// All types of the table in order, with one lane each.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).take(TABLE.len()).map(Self::of_row)
    }

    fn find(wanted: impl Fn(&Row) -> bool) -> Option<Self> {
        Self::all().find(|dtype| wanted(dtype.row()))
    }

    const fn row(self) -> &'static Row {
        match self.at {
            NONE => &DLPACKS_ALONE,
            CAIS => &CAIS_ALONE,
            at => &TABLE[at as usize],
        }
    }

    /// The index of the row; not below [`Self::COUNT`] for a type that only one protocol has.
    #[doc(hidden)]
    pub const fn index(self) -> usize {
        self.at as usize
    }

    /// The type's name, as NumPy and `ml_dtypes` spell it. A type that only one protocol has gets a description.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The typestr of one lane; `|V0` for a type that only one protocol has.
    pub const fn typestr(self) -> &'static str {
        self.row().typestr
    }

    /// Whether the typestr has the letter `V`, which names no type.
    #[doc(hidden)]
    pub const fn is_opaque(self) -> bool {
        self.row().typestr.as_bytes()[1] == b'V'
    }

    /// DLPack's type code.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The size of one lane in bits, as DLPack has it.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// DLPack's lanes, 1 or more.
    pub const fn lanes(self) -> u16 {
        self.lanes
    }

    /// The size of one lane in bytes, rounded down. This is CAI's item size if both protocols have the type.
    pub const fn itemsize(self) -> i64 {
        (self.bits / 8) as i64
    }

    /// The alignment in bytes that a GPU needs to read one lane; 1 for a type that only one protocol has.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn alignment(self) -> u64 {
        if self.is_shared() { (self.bits / 8) as u64 } else { 1 }
    }

    /// The size in bytes of one DLPack element with all lanes, rounded up to whole bytes. A padded lane counts as one
    /// byte.
    pub const fn element_size(self) -> i64 {
        self.element_bits().div_ceil(8).cast_signed()
    }

    /// Whether autograd may track values of the type: false for integers and booleans, true for all other codes.
    pub const fn is_inexact(self) -> bool {
        !matches!(self.code, 0 | 1 | 6)
    }

    /// Whether the type is complex.
    pub const fn is_complex(self) -> bool {
        self.code == 5
    }
}

impl fmt::Debug for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cais_alone() {
            return f.write_str(self.row().name);
        }
        if !self.is_shared() {
            let Self { code, bits, lanes, .. } = self;
            return write!(f, "DLDataType(code={code}, bits={bits}, lanes={lanes})");
        }
        match self.lanes {
            1 => f.write_str(self.row().name),
            lanes => write!(f, "{}x{lanes}", self.row().name),
        }
    }
}
