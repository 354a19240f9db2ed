//! The kernels, and their stand-ins on the simulated device.

use cai_bridge::{Array, ArrayMut, DeviceStream, Element, Grid, Kernel, OnHost, Result, scope};

const PTX: &str = include_str!("kernels.ptx");

/// An element type for which a kernel adds an element's index to it. Integers wrap around.
pub(crate) trait Indexed: Element {
    const ADD_INDEX: &'static Kernel;

    fn plus(self, index: u32) -> Self;
}

macro_rules! indexed {
    ($($type:ty, $entry:literal, $plus:expr;)*) => {$(
        impl Indexed for $type {
            const ADD_INDEX: &'static Kernel = {
                static KERNEL: Kernel = Kernel::new($entry, PTX).on_host(|call| {
                    let values = call.values::<$type>(0)?.into_iter();
                    let indexed: Vec<$type> = values.zip(0..).map(|(x, i)| x.plus(i)).collect();
                    call.store(0, &indexed)
                });
                &KERNEL
            };

            fn plus(self, index: u32) -> Self {
                $plus(self, index)
            }
        }
    )*};
}

indexed! {
    i32, "add_index_i32", |x: i32, i: u32| x.wrapping_add_unsigned(i);
    i64, "add_index_i64", |x: i64, i: u32| x.wrapping_add(i64::from(i));
    f32, "add_index_f32", |x: f32, i: u32| x + i as f32;
    f64, "add_index_f64", |x: f64, i: u32| x + f64::from(i);
}

/// Copies elements of 4 bytes, or of 8 bytes below, into C order.
static COPY4: Kernel =
    Kernel::new("copy4", PTX).on_host(|call| same::<f32>(call).or_else(|_| same::<i32>(call)));
static COPY8: Kernel =
    Kernel::new("copy8", PTX).on_host(|call| same::<f64>(call).or_else(|_| same::<i64>(call)));

fn same<T: Element>(call: &OnHost<'_>) -> Result<()> {
    call.store(1, &call.values::<T>(0)?)
}

pub(crate) fn add_index<T: Indexed>(stream: &DeviceStream, mut array: ArrayMut) -> Result<()> {
    scope(stream, |s| {
        let mut x = array.on_mut(s)?.view_mut::<T>()?;
        let n = u32::try_from(x.len()).unwrap_or(u32::MAX);
        // SAFETY: the kernel takes an address and n. It writes only to the n elements of type `T` there, which `x` has.
        unsafe { s.launch(T::ADD_INDEX, Grid::cover(x.len(), 256), (&mut x, n)) }
    })
}

/// Copies `values` to `array` on the GPU. `values` has the same shape, up to three dimensions, and any strides.
pub(crate) fn copy<T: Element>(
    stream: &DeviceStream,
    values: &Array,
    mut array: ArrayMut,
) -> Result<()> {
    scope(stream, |s| {
        let from = values.on(s)?.strided::<T>()?;
        let mut to = array.on_mut(s)?.view_mut::<T>()?;
        if to.is_empty() {
            return Ok(());
        }
        let (mut extents, mut steps) = ([1; 3], [0; 3]);
        let front = 3 - from.shape().len().min(3);
        for ((extent, step), at) in from.shape().iter().zip(from.strides()).zip(front..3) {
            (extents[at], steps[at]) = (*extent, *step);
        }
        let [n, n1, n2] = [to.len() as i64, extents[1], extents[2]]
            .map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let kernel = if size_of::<T>() == 4 { &COPY4 } else { &COPY8 };
        let arguments = (&from, &mut to, n, n1, n2, steps[0], steps[1], steps[2]);
        // SAFETY: the kernel reads n elements by the three strides of `from`, and writes n elements to `to`. The
        // callers check that both have the same shape. `size_of` picks the kernel for this element size.
        unsafe { s.launch(kernel, Grid::cover(n as usize, 256), arguments) }
    })
}
