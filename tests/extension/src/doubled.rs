//! What docs/rust.md shows of tests in Rust.

// [start:page]
use cai_bridge::{Array, ArrayMut, Grid, Kernel, Result, WorkStream, scope};

static DOUBLE: Kernel = Kernel::new("double", include_str!("double.ptx")).on_host(|call| {
    let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
    call.store(1, &doubled)
});

/// Python's `double` calls `py.detach(|| doubled(&stream, &x))`.
pub fn doubled(stream: &impl WorkStream, x: &Array) -> Result<ArrayMut> {
    let mut out = Array::empty::<f32>(stream, x.shape())?;
    scope(stream, |s| {
        let x = x.on(s)?.view::<f32>()?;
        let mut out = out.on_mut(s)?.view_mut::<f32>()?;
        let n = x.len() as u32;
        // SAFETY: the kernel reads n floats at x, and writes n at out.
        unsafe { s.launch(&DOUBLE, Grid::cover(x.len(), 256), (&x, &mut out, n)) }
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use cai_bridge::testing::SimulatedCuda;
    use cai_bridge::{Array, Result};

    #[test]
    fn the_kernel_waits_for_what_was_queued() -> Result<()> {
        let cuda = SimulatedCuda::new(1);
        let (theirs, mine) = (cuda.stream(0)?, cuda.stream(0)?);
        let x = Array::from_host(&theirs, &[1.0_f32, -2.5], &[2])?;
        let y = super::doubled(&mine, &x)?;
        assert_eq!(y.to_vec::<f32>(&theirs)?, [2.0, -5.0]);
        cuda.check()
    }

    #[test]
    fn a_wait_that_is_left_out_is_found() -> Result<()> {
        let cuda = SimulatedCuda::new(1);
        let (theirs, mine) = (cuda.stream(0)?, cuda.stream(0)?);
        let x = Array::from_host(&theirs, &[1.0_f32, -2.5], &[2])?;
        cuda.suppress("cuStreamWaitEvent", 1)?;
        drop((super::doubled(&mine, &x)?, x)); // freeing is an access, too
        let found = cuda.reports()?;
        assert!(found[0].contains("'double'"), "{found:?}");
        Ok(())
    }
}
// [end:page]
