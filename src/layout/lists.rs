//! Short lists of integers without an allocation: arrays seldom have more than four dimensions.

/// How many values a list holds at most without an allocation. A larger number would make each layout larger.
const INLINE: usize = 4;

/// A short list of integers.
///
/// # Examples
///
/// ```
/// use cai_bridge::layout::Dims;
///
/// let mut dims: Dims = [2, 3].into_iter().collect();
/// dims.push(4);
/// assert_eq!(dims.as_slice(), [2, 3, 4]);
/// assert!(Dims::new().as_slice().is_empty());
/// ```
#[derive(Debug, Clone)]
pub enum Dims {
    /// Up to four values.
    Inline(u8, [i64; INLINE]),
    /// Any number of values, on the heap.
    Heap(Vec<i64>),
}

impl Dims {
    /// An empty list.
    pub const fn new() -> Self {
        Self::Inline(0, [0; INLINE])
    }

    /// Adds `value` at the end.
    #[inline]
    pub fn push(&mut self, value: i64) {
        match self {
            Self::Heap(values) => values.push(value),
            Self::Inline(len, values) => {
                if let Some(slot) = values.get_mut(usize::from(*len)) {
                    *slot = value;
                    *len += 1;
                } else {
                    let mut heap = values.to_vec();
                    heap.push(value);
                    *self = Self::Heap(heap);
                }
            }
        }
    }

    /// The values.
    pub fn as_slice(&self) -> &[i64] {
        match self {
            Self::Inline(len, values) => values.get(..usize::from(*len)).unwrap_or(&[]),
            Self::Heap(values) => values,
        }
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<i64> for Dims {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        let mut dims = Self::new();
        values.into_iter().for_each(|value| dims.push(value));
        dims
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Dims {}

#[derive(Debug, Clone)]
pub(super) enum Lists {
    Inline(u8, [i64; INLINE], [i64; INLINE]),
    /// All extents, then all strides.
    Heap(Box<[i64]>),
}

impl Lists {
    pub(super) const EMPTY: Self = Self::Inline(0, [0; INLINE], [0; INLINE]);

    #[inline(always)]
    pub(super) fn zeros(count: usize) -> Self {
        match u8::try_from(count) {
            Ok(short) if count <= INLINE => Self::Inline(short, [0; INLINE], [0; INLINE]),
            _ => Self::Heap(vec![0; 2 * count].into()),
        }
    }

    #[inline]
    pub(super) fn both(&self) -> (&[i64], &[i64]) {
        match self {
            Self::Inline(count, shape, strides) => {
                let count = usize::from(*count).min(INLINE);
                (&shape[..count], &strides[..count])
            }
            Self::Heap(both) => both.split_at(both.len() / 2),
        }
    }

    #[inline(always)]
    pub(super) fn both_mut(&mut self) -> (&mut [i64], &mut [i64]) {
        match self {
            Self::Inline(count, shape, strides) => {
                let count = usize::from(*count).min(INLINE);
                (&mut shape[..count], &mut strides[..count])
            }
            Self::Heap(both) => both.split_at_mut(both.len() / 2),
        }
    }
}
