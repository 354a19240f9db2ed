//! Where a program's choices come from: bytes, or random numbers.

/// Choices, one after the other.
pub trait Choices {
    /// A number below `bound`, which is 1 or more.
    fn below(&mut self, bound: usize) -> usize;
}

/// A small generator of random numbers (xorshift), so that a seed means the same everywhere.
pub struct Random(pub u64);

impl Choices for Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// A fuzzer's input; zeros follow its end.
pub struct Bytes<'a>(pub &'a [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let raw: usize =
            if bound <= 256 { self.byte().into() } else { u16::from_le_bytes(self.take()).into() };
        raw % bound
    }
}

impl<'a> Bytes<'a> {
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let found = self.slice(N);
        taken[..found.len()].copy_from_slice(found);
        taken
    }

    /// Up to `most` bytes as they are.
    pub fn slice(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An integer: mostly a small one, or one near a limit, or any at all.
    pub fn int(&mut self) -> i64 {
        match self.byte() {
            small @ 0..=199 => i64::from(small) - 40,
            power @ 200..=247 => {
                let near = i64::from(self.byte().cast_signed());
                (1_i64 << (power - 200 + 16)).wrapping_add(near).wrapping_mul(if near % 2 == 0 {
                    1
                } else {
                    -1
                })
            }
            248 => i64::MAX,
            249 => i64::MIN,
            _ => i64::from_le_bytes(self.take()),
        }
    }

    /// An address: any, or near an end of the address space.
    pub fn address(&mut self) -> u64 {
        match self.byte() {
            0 => 0,
            1..=99 => 0x7000_0000,
            100..=149 => u64::from(self.byte()),
            150..=199 => u64::MAX - u64::from(self.byte()),
            _ => u64::from_le_bytes(self.take()),
        }
    }

    /// Up to 66 integers, seldom more than five.
    pub fn ints(&mut self) -> Vec<i64> {
        let count = match self.byte() {
            few @ 0..=239 => few % 6,
            many => many - 240 + 55,
        };
        (0..count).map(|_| self.int()).collect()
    }
}
