//! A slice of the crate's own cudarc as an array.

use cai_bridge::{Array, Error};
use cudarc::driver::{CudaContext, CudaSlice};

fn share(slice: CudaSlice<f32>) -> Result<Array, Error> {
    Ok(Array::from_slice(slice)?.into())
}

fn main() {
    let made = CudaContext::new(0).and_then(|cuda| cuda.default_stream().alloc_zeros::<f32>(4));
    println!("{:?}", made.map(share).is_ok());
}
