//! Memory of cudarc's that goes to another crate as a tensor, and comes back, as docs/rust.md shows it.

// [start:page]
use std::sync::Arc;

use cai_bridge::cudarc::driver::{CudaSlice, CudaStream};
use cai_bridge::{Array, Result, Tensor};

/// A framework's weights for another crate's work on `theirs`, which waits for what is queued on the slice's stream.
fn lent(weights: &Arc<CudaSlice<f32>>, theirs: &Arc<CudaStream>) -> Result<Tensor> {
    Array::from_shared(Arc::clone(weights))?.to_dlpack(theirs)
}

/// A tensor of another crate's that is ready on `stream`. It goes back there when the array is dropped.
fn taken(tensor: Tensor, stream: &Arc<CudaStream>) -> Result<Array> {
    // SAFETY: the crate that made the tensor made it for `stream`.
    unsafe { Array::from_dlpack(tensor, stream) }
}
// [end:page]

fn main() {
    let round =
        |weights: &Arc<CudaSlice<f32>>| taken(lent(weights, weights.stream())?, weights.stream());
    let made = cai_bridge::cudarc::driver::CudaContext::new(0)
        .and_then(|cuda| cuda.default_stream().alloc_zeros::<f32>(4));
    println!("{:?}", made.map(|slice| round(&Arc::new(slice)).is_ok()));
}
