//! Sources of a program's choices: bytes, or random numbers.

/// A sequence of choices.
pub trait Choices {
    /// A number below `bound`, which must be at least 1.
    fn below(&mut self, bound: usize) -> usize;
}

/// A small random number generator (xorshift). A seed gives the same numbers on every machine.
pub struct Random(pub u64);

impl Choices for Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// The fuzzer's input, followed by endless zeros.
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

    /// Up to `most` bytes, unchanged.
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

    /// An integer: usually a small one, sometimes near a limit, sometimes any.
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

    /// An address: ordinary, near an end of the address space, or any.
    pub fn address(&mut self) -> u64 {
        match self.byte() {
            0 => 0,
            1..=99 => 0x7000_0000,
            100..=149 => u64::from(self.byte()),
            150..=199 => u64::MAX - u64::from(self.byte()),
            _ => u64::from_le_bytes(self.take()),
        }
    }

    /// Up to 66 integers, rarely more than five.
    pub fn ints(&mut self) -> Vec<i64> {
        let count = match self.byte() {
            few @ 0..=239 => few % 6,
            many => many - 240 + 55,
        };
        (0..count).map(|_| self.int()).collect()
    }
}
