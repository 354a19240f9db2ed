//! Rust's arrays, by the public API alone, on the simulated device.
#![allow(unsafe_code)]

mod elements;
mod owners;
#[allow(unreachable_pub, clippy::cast_possible_truncation, reason = "as the page shows it")]
#[path = "../../extension/src/doubled.rs"]
mod page;
mod parts;
mod refusals;
mod scopes;
mod tensors;
mod turns;

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, ArrayMut, DeviceStream, Grid, Kernel, Result, Scope, scope};

/// A device, and two streams of it.
fn two_streams() -> (SimulatedCuda, DeviceStream, DeviceStream) {
    let cuda = SimulatedCuda::new(1);
    let (one, other) = (cuda.stream(0).unwrap(), cuda.stream(0).unwrap());
    (cuda, one, other)
}

/// Nothing raced, and no memory is left.
fn assert_over(cuda: &SimulatedCuda) {
    assert_eq!(cuda.bytes_in_use(), 0);
    cuda.check().unwrap();
}

/// Adds 1 to each of the floats.
pub(crate) static ADD: Kernel = Kernel::new("add", "").on_host(|call| {
    let more: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| x + 1.0).collect();
    call.store(0, &more)
});

/// Copies floats.
pub(crate) static COPY: Kernel = Kernel::new("copy", "").on_host(|call| {
    let values = call.values::<f32>(0)?;
    call.store(1, &values)
});

pub(crate) fn add(stream: &DeviceStream, x: &mut ArrayMut) -> Result<()> {
    scope(stream, |s| add_in(s, x))
}

pub(crate) fn add_in(s: &Scope<'_, DeviceStream>, x: &mut ArrayMut) -> Result<()> {
    let mut x = x.on_mut(s)?.strided_mut::<f32>()?;
    // SAFETY: the stand-in alone runs.
    unsafe { s.launch(&ADD, Grid::cover(1, 1), (&mut x,)) }
}

pub(crate) fn copied(stream: &DeviceStream, x: &Array) -> Result<Array> {
    let mut out = Array::empty::<f32>(stream, x.shape())?;
    scope(stream, |s| {
        let x = x.on(s)?.strided::<f32>()?;
        let to = out.on_mut(s)?.view_mut::<f32>();
        // SAFETY: as above.
        unsafe { s.launch(&COPY, Grid::cover(1, 1), (&x, &mut to?)) }
    })?;
    Ok(out.into())
}
