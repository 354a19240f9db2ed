//! Two CUDA kernels for arrays of PyTorch, CuPy, JAX and Numba, also mixed. Any of these libraries takes the results.

use cai_bridge::{Array, DeviceStream, Grid, Kernel, scope};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

static SAXPY: Kernel = Kernel::new("saxpy", PTX).on_host(|call| {
    let (a, x, y) = (call.scalar::<f32>(0)?, call.values::<f32>(1)?, call.values::<f32>(2)?);
    let out: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a * x + y).collect();
    call.store(3, &out)
});

static BLUR: Kernel = Kernel::new("blur", PTX).on_host(|call| {
    let (image, h, w) = (call.values::<f32>(0)?, call.scalar::<u32>(2)?, call.scalar::<u32>(3)?);
    let near = |at: u32, most: u32| [at.saturating_sub(1), at, (at + 1).min(most - 1)];
    let mean = |i: u32| -> f32 {
        let (rows, columns) = (near(i / w, h), near(i % w, w));
        let at = |row: u32, column: u32| image[(row * w + column) as usize];
        rows.iter().flat_map(|r| columns.iter().map(move |c| at(*r, *c))).sum::<f32>() / 9.0
    };
    call.store(1, &(0..h * w).map(mean).collect::<Vec<f32>>())
});

/// ``a * x + y`` for two float32 arrays of the same shape.
#[pyfunction]
fn saxpy(py: Python<'_>, a: f32, x: Array, y: Array) -> PyResult<Array> {
    if x.shape() != y.shape() {
        return Err(PyValueError::new_err(format!("{:?} and {:?}", x.shape(), y.shape())));
    }
    let stream = DeviceStream::beside(&x)?;
    let mut out = Array::empty::<f32>(&stream, x.shape())?;
    py.detach(|| {
        scope(&stream, |s| {
            let (x, y) = (x.on(s)?.view::<f32>()?, y.on(s)?.view::<f32>()?);
            let mut out = out.on_mut(s)?.view_mut::<f32>()?;
            let n = x.len() as u32;
            // SAFETY: SAXPY takes these five arguments, and touches n floats at each address. The arrays have n
            // elements.
            unsafe { s.launch(&SAXPY, Grid::cover(x.len(), 256), (a, &x, &y, &mut out, n)) }
        })
    })?;
    Ok(out.into())
}

/// The mean of each pixel of a float32 image and its neighbours. Pixels at the edge are repeated. Takes any strides.
#[pyfunction]
fn blur(py: Python<'_>, image: Array) -> PyResult<Array> {
    let &[h, w] = image.shape() else {
        return Err(PyValueError::new_err(format!(
            "an image has two dimensions, not {:?}",
            image.shape()
        )));
    };
    let stream = DeviceStream::beside(&image)?;
    let mut out = Array::empty::<f32>(&stream, &[h, w])?;
    py.detach(|| {
        scope(&stream, |s| {
            let image = image.on(s)?.strided::<f32>()?;
            let mut out = out.on_mut(s)?.view_mut::<f32>()?;
            let (size, sy, sx) = (out.len(), image.strides()[0], image.strides()[1]);
            let arguments = (&image, &mut out, h as u32, w as u32, sy, sx);
            // SAFETY: BLUR takes these six arguments. It reads h times w floats by these strides, and writes as many.
            unsafe { s.launch(&BLUR, Grid::cover(size, 256), arguments) }
        })
    })?;
    Ok(out.into())
}

#[pymodule(gil_used = false)]
mod rust_extension {
    #[pymodule_export]
    use super::{blur, saxpy};
}

const PTX: &str = "
.version 6.4
.target sm_75
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n) {
    .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %d<5>;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r1, [n]; setp.ge.u32 %p, %r4, %r1; @%p ret;
    ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.u64 %d3, [out];
    mul.wide.u32 %d4, %r4, 4; add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d4; add.u64 %d3, %d3, %d4;
    ld.param.f32 %f1, [a]; ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2];
    fma.rn.f32 %f4, %f1, %f2, %f3; st.global.f32 [%d3], %f4; ret;
}
.visible .entry blur(.param .u64 x, .param .u64 out, .param .u32 h, .param .u32 w, .param .s64 sy, .param .s64 sx) {
    .reg .pred %p; .reg .b32 %r<13>; .reg .f32 %f<3>; .reg .b64 %d<8>;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r1, [h]; ld.param.u32 %r2, [w]; mul.lo.u32 %r3, %r1, %r2; setp.ge.u32 %p, %r4, %r3; @%p ret;
    div.u32 %r5, %r4, %r2; rem.u32 %r6, %r4, %r2; sub.s32 %r1, %r1, 1; sub.s32 %r2, %r2, 1;
    ld.param.u64 %d1, [x]; ld.param.u64 %d2, [out]; ld.param.s64 %d3, [sy]; ld.param.s64 %d4, [sx];
    mov.f32 %f1, 0f00000000; mov.s32 %r7, -1;
ROW: mov.s32 %r8, -1;
    add.s32 %r9, %r5, %r7; max.s32 %r9, %r9, 0; min.s32 %r9, %r9, %r1; cvt.s64.s32 %d5, %r9; mul.lo.s64 %d5, %d5, %d3;
COLUMN: add.s32 %r10, %r6, %r8; max.s32 %r10, %r10, 0; min.s32 %r10, %r10, %r2;
    cvt.s64.s32 %d6, %r10; mad.lo.s64 %d6, %d6, %d4, %d5; shl.b64 %d6, %d6, 2; add.s64 %d6, %d6, %d1;
    ld.global.f32 %f2, [%d6]; add.f32 %f1, %f1, %f2;
    add.s32 %r8, %r8, 1; setp.le.s32 %p, %r8, 1; @%p bra COLUMN;
    add.s32 %r7, %r7, 1; setp.le.s32 %p, %r7, 1; @%p bra ROW;
    mul.wide.u32 %d7, %r4, 4; add.u64 %d7, %d7, %d2; div.rn.f32 %f1, %f1, 0f41100000; st.global.f32 [%d7], %f1; ret;
}
";
