//! The bridge without cudarc.

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, Result, scope};

fn main() -> Result<()> {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0)?;
    let mut x = Array::empty::<f32>(&stream, &[4])?;
    scope(&stream, |s| x.on_mut(s)?.view_mut::<f32>().map(|_| ()))?;
    drop(x);
    cuda.check()
}
