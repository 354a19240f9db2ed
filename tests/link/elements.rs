//! An array of a type that is no element type, or of one whose feature is left out.

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, Result};

fn main() -> Result<()> {
    let stream = SimulatedCuda::new(1).stream(0)?;
    Array::from_host(&stream, &[true], &[1])?;
    Ok(())
}
