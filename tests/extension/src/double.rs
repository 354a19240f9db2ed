//! The extension that docs/rust.md shows, which tests/python/test_rust_page.py tests.

// [start:page]
use cai_bridge::{Array, DeviceStream, Grid, Kernel, scope};
use pyo3::prelude::*;

// What `on_host` is given stands in for the PTX in tests without a GPU.
static DOUBLE: Kernel = Kernel::new("double", include_str!("double.ptx")).on_host(|call| {
    let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
    call.store(1, &doubled)
});

/// Takes the arrays of torch, CuPy, JAX, Numba, ...
#[pyfunction]
fn double(py: Python<'_>, x: Array) -> PyResult<Array> {
    let stream = DeviceStream::beside(&x)?;
    let mut out = Array::empty::<f32>(&stream, x.shape())?;
    py.detach(|| {
        scope(&stream, |s| {
            let x = x.on(s)?.view::<f32>()?; // waits for torch's stream; type and layout are checked
            let mut out = out.on_mut(s)?.view_mut::<f32>()?;
            let n = x.len() as u32;
            // SAFETY: the kernel reads n floats at x, and writes n at out.
            unsafe { s.launch(&DOUBLE, Grid::cover(x.len(), 256), (&x, &mut out, n)) }
        }) // torch's stream waits for this one
    })?;
    Ok(out.into()) // speaks both protocols; freed in order after its last consumer
}

#[pymodule]
mod my_kernels {
    #[pymodule_export]
    use super::double;
}
// [end:page]
