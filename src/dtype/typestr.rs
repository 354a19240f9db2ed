//! Reading typestrs.

use super::{Dtype, TABLE};
use crate::error::{Error, Kind, Result};

/// The [`key`] of each row's typestr; 0 for a typestr with the letter `V`, which names no type.
const EXACT: [u32; TABLE.len()] = {
    let mut keys = [0; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        let text = TABLE[at].typestr.as_bytes();
        if text[1] != b'V' {
            keys[at] = key(text);
        }
        at += 1;
    }
    keys
};

/// `text` as a number, which is 0 unless `text` has three or four bytes.
const fn key(text: &[u8]) -> u32 {
    match *text {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        // If `d` were 0, the number would be the key of `[a, b, c]`.
        [a, b, c, d] if d != 0 => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Whether the table has a type of `size` bytes that NumPy has no letter for.
fn is_opaque(size: i64) -> bool {
    Dtype::all().any(|dtype| dtype.is_opaque() && dtype.itemsize() == size)
}

/// What a typestr says about the element type.
///
/// # Examples
///
/// ```
/// use cai_bridge::dtype::{Dtype, Typestr};
///
/// assert_eq!(Typestr::parse("|u1")?, Typestr::Exact(Dtype::from_dlpack(1, 8, 1)?));
/// let opaque = Typestr::parse("|V1")?; // an 8-bit float, as PyTorch and CuPy export it
/// assert_eq!(opaque, Typestr::Opaque(1));
/// assert_eq!(opaque.resolve("|V1", Some("float8_e4m3fn"))?.typestr(), "|V1");
/// assert!(opaque.resolve("|V1", None).is_err(), "never guessed");
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typestr {
    /// Exactly this type.
    Exact(Dtype),
    /// One of the types of this many bytes that NumPy has no letter for.
    Opaque(i64),
}

impl Typestr {
    /// Reads a typestr. Fails if it is malformed, or cannot mean a type of [`Dtype::all`].
    pub fn parse(text: &str) -> Result<Self> {
        let wanted = key(text.as_bytes());
        match Dtype::all().find(|dtype| EXACT[dtype.index()] == wanted && wanted != 0) {
            Some(dtype) => Ok(Self::Exact(dtype)),
            None => Self::parse_uncommon(text),
        }
    }

    /// The size of an item in bytes. `None` if the typestr is malformed or gives no size above 0, as for object
    /// references.
    #[doc(hidden)]
    pub fn itemsize(text: &str) -> Option<i64> {
        let Spelling { letter, size, digits, .. } = Spelling::of(text)?;
        match letter {
            'O' | 't' => None,
            _ if digits.contains('[') && !digits.ends_with(']') => None,
            'U' => size.checked_mul(4),
            _ => Some(size),
        }
        .filter(|size| *size > 0)
    }

    /// Whether the typestr has the size of `dtype` and, for more than one byte, a byte order other than `>`.
    #[doc(hidden)]
    pub fn has_bytes_of(text: &str, dtype: Dtype) -> bool {
        let is_swapped = || Spelling::of(text).is_some_and(|read| read.order == '>');
        Self::itemsize(text) == Some(dtype.itemsize()) && (dtype.itemsize() == 1 || !is_swapped())
    }

    /// The typestr with byte order, letter, size and, for dates, the unit as NumPy writes it. `None` if the typestr is
    /// malformed, or is written so.
    #[doc(hidden)]
    pub fn respelled(text: &str) -> Option<String> {
        let Spelling { order, letter, digits, .. } = Spelling::of(text)?;
        let order = if matches!(letter, 'V' | 'S' | 'a') { '|' } else { order };
        let (size, unit) = digits.split_at(digits.find('[').map_or(digits.len(), |at| at + 1));
        let is_usual = text.starts_with(['<', '>', '|']) && text.len() > 2 && once(unit) == unit;
        (!is_usual).then(|| format!("{order}{letter}{size}{}", once(unit)))
    }

    /// The alignment in bytes that a GPU needs to read items; 1 if unknown. `c8` and `c16` are aligned to their whole
    /// size, as in CUDA (`float2`, `double2`), thrust and PyTorch.
    #[doc(hidden)]
    pub fn alignment(text: &str) -> u64 {
        match Spelling::of(text) {
            Some(Spelling { letter: 'U', .. }) => 4,
            Some(Spelling { letter: 'V' | 'S' | 'a' | 'O' | 't', .. }) | None => 1,
            Some(Spelling { size, .. }) if matches!(size, 2 | 4 | 8 | 16) => size.unsigned_abs(),
            Some(_) => 1,
        }
    }

    /// Whether both typestrs have the same letter, size, unit and, where it matters, byte order. Typestrs that the
    /// bridge cannot read must be equal texts.
    #[doc(hidden)]
    pub fn is_same(text: &str, other: &str) -> bool {
        let of = |text| {
            let Spelling { order, letter, size, digits } = Spelling::of(text)?;
            let unit = digits.split_once('[').map(|(_, unit)| once(unit));
            let is_free = matches!(letter, 'V' | 'S' | 'a') || (size == 1 && letter != 'U');
            let order = if is_free { '|' } else { order };
            Some((order, if letter == 'a' { 'S' } else { letter }, size, unit))
        };
        text == other || of(text).is_some_and(|read| Some(read) == of(other))
    }

    /// Whether the typestr names a type of raw bytes, which may have fields.
    #[doc(hidden)]
    pub fn may_have_fields(text: &str) -> bool {
        Spelling::of(text).is_some_and(|read| read.letter == 'V')
    }

    fn parse_uncommon(text: &str) -> Result<Self> {
        let malformed = || Error::new(Kind::Typestr, format!("{text:?}"));
        let Spelling { order, letter, size, .. } = Spelling::of(text).ok_or_else(malformed)?;
        let has_more = matches!(letter, 'm' | 'M' | 'O');
        let plain = format!("{order}{letter}{size}");
        if size > 0 && !has_more && plain != text {
            // Read the usual spelling instead. Like NumPy, ignore leading zeros of the size.
            return Self::parse(&plain);
        }
        match letter {
            'f' if size == 1 => return Ok(Self::Opaque(1)),
            'V' if (size == 1 || order != '>') && is_opaque(size) => {
                return Ok(Self::Opaque(size));
            }
            'b' | 'i' | 'u' if size == 1 => return Self::parse(&format!("|{letter}1")),
            _ => {}
        }
        match (order, letter) {
            ('>', 'i' | 'u' | 'f' | 'c' | 'V') => {
                Err(Error::new(Kind::BigEndian, format!("{text:?}")))
            }
            ('|', 'i' | 'u' | 'f' | 'c') => Err(malformed()),
            _ => Err(Error::at(Kind::Dtype, "typestr", format!("{text:?}"))),
        }
    }

    /// The type. `name` chooses it if the typestr does not.
    ///
    /// # Errors
    ///
    /// A name is needed and missing, is unknown, or names a type that contradicts the typestr.
    pub fn resolve(self, text: &str, name: Option<&str>) -> Result<Dtype> {
        match (self, name) {
            (Self::Exact(dtype), Some(name)) if name != dtype.name() => {
                let got = format!("the type name {name:?} beside the typestr {text:?}");
                Err(Error::new(Kind::DtypeDiffers, got))
            }
            (Self::Exact(dtype), _) => Ok(dtype),
            (Self::Opaque(_), None) => Err(Error::new(Kind::DtypeAmbiguous, format!("{text:?}"))),
            (Self::Opaque(size), Some(name)) => match Dtype::from_name(name) {
                Some(dtype) if dtype.is_opaque() && dtype.itemsize() == size => Ok(dtype),
                known => {
                    let got = format!("{text:?} with the type name {name:?}");
                    let other = known.map(Dtype::itemsize).filter(|other| *other != size);
                    let why = other.map(|other| format!(", whose itemsize is {other}"));
                    Err(Error::new(Kind::DtypeAmbiguous, got + &why.unwrap_or_default()))
                }
            },
        }
    }
}

/// The unit of a date without its count of 1: `ns]` for `1ns]`.
fn once(unit: &str) -> &str {
    unit.strip_prefix('1')
        .filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(unit)
}

/// The parts of a typestr. Without a sign, or with `=`, the byte order is this machine's. A single type character, as
/// in DALI's `=f`, is accepted too.
struct Spelling<'a> {
    order: char,
    letter: char,
    /// The size in bytes; for the letter `U`, in characters.
    size: i64,
    /// Everything after the letter; for a single type character, the size in bytes.
    digits: &'a str,
}

/// The letter and size of a character of NumPy's `dtype.char`. `None` for `l`, whose size depends on the compiler, and
/// for characters that are not listed.
const fn by_character(character: char) -> Option<(char, &'static str)> {
    Some(match character {
        '?' => ('b', "1"),
        'b' => ('i', "1"),
        'h' => ('i', "2"),
        'i' => ('i', "4"),
        'q' => ('i', "8"),
        'B' => ('u', "1"),
        'H' => ('u', "2"),
        'I' => ('u', "4"),
        'Q' => ('u', "8"),
        'e' => ('f', "2"),
        'f' => ('f', "4"),
        'd' => ('f', "8"),
        'F' => ('c', "8"),
        'D' => ('c', "16"),
        _ => return None,
    })
}

impl<'a> Spelling<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (order, rest) = match text.chars().next()? {
            order @ ('<' | '>' | '|') => (order, text.get(1..)?),
            '=' => ('<', text.get(1..)?),
            _ => ('<', text),
        };
        let mut letters = rest.chars();
        let letter = letters.next()?;
        if letters.as_str().is_empty()
            && let Some((letter, digits)) = by_character(letter)
        {
            // A single byte has no byte order, so it gets `|`. A longer type has an order, so `|` is refused.
            let (is_byte, is_free) = (digits == "1", order == '|');
            let order = if is_byte { '|' } else { order };
            let size = digits.parse().ok()?;
            return (is_byte || !is_free).then_some(Self { order, letter, size, digits });
        }
        let known = matches!(
            letter,
            'b' | 'i' | 'u' | 'f' | 'c' | 'V' | 'S' | 'a' | 'U' | 'O' | 'm' | 'M' | 't'
        );
        if !known {
            return None;
        }
        let digits = letters.as_str();
        // Only dates and time spans have a unit, in brackets.
        let unit = if matches!(letter, 'm' | 'M') { digits.find('[') } else { None };
        let number = unit.and_then(|at| digits.get(..at)).unwrap_or(digits);
        let size = match number {
            "" if letter == 'O' => 8,
            _ if number.bytes().all(|byte| byte.is_ascii_digit()) => number.parse().ok()?,
            _ => return None,
        };
        Some(Self { order, letter, size, digits })
    }
}
