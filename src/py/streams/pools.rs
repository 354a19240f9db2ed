//! Streams that their libraries never destroy, by their handles: PyTorch's pools, and those that JAX asks
//! others to be ready on.
//!
//! Both hand their streams out in turn, so a whole round lists them: PyTorch has 32 for each priority and
//! device, JAX four for each device (torch 2.11, JAX 0.11.2, one H200, 2026-11). Two rounds are made, so that
//! the library's turn is where it was. A library that has not begun to use the device is not asked, since
//! that would make it begin.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

use crate::driver::Handle;
use crate::local::local;
use crate::py::imported::imported;
use crate::py::interpreter::answered;

/// The streams of a library on a device, in order.
struct Pool {
    library: &'static str,
    ordinal: i32,
    handles: Vec<u64>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());
/// Whether there are streams of JAX's among them.
static JAX_IS_LISTED: AtomicBool = AtomicBool::new(false);

/// More streams than any library has in turn.
const MOST: usize = 256;

local! {
    /// The stream of a pool that this thread found last, and its GPU. A pool loses none.
    static LAST: Cell<(u64, i32)> = const { Cell::new((0, 0)) };
}

/// Whether the stream is of a pool of one of them.
#[inline]
pub(super) fn has(py: Python<'_>, driver: &Handle, handle: u64, ordinal: i32) -> PyResult<bool> {
    if !matches!(driver, Handle::Cuda) {
        return Ok(false);
    }
    if LAST.get() == Some((handle, ordinal)) {
        return Ok(true);
    }
    let has = is_listed(py, handle, ordinal)?;
    if has {
        LAST.replace((handle, ordinal));
    }
    Ok(has)
}

fn is_listed(py: Python<'_>, handle: u64, ordinal: i32) -> PyResult<bool> {
    for (name, list) in [("torch", torchs as Lister), ("jax", jaxs)] {
        if let Some(known) = known(name, ordinal, handle) {
            if known {
                return Ok(true);
            }
            continue;
        }
        let Some(mut handles) = answered(py, list(py, ordinal))?.flatten() else { continue };
        handles.sort_unstable();
        let has = handles.binary_search(&handle).is_ok();
        JAX_IS_LISTED.fetch_or(name == "jax", Ordering::Relaxed);
        POOLS.lock().unwrap_or_else(PoisonError::into_inner).push(Pool {
            library: name,
            ordinal,
            handles,
        });
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether any stream of JAX's is known.
pub(super) fn has_jaxs() -> bool {
    JAX_IS_LISTED.load(Ordering::Relaxed)
}

/// Whether the stream, of which [`has`] was asked, is one of those that JAX asks others to be ready on.
pub(super) fn is_jaxs(handle: u64, ordinal: i32) -> bool {
    known("jax", ordinal, handle) == Some(true)
}

/// Lists the streams of a library on a device; `None` where it does not use it yet.
type Lister = fn(Python<'_>, i32) -> PyResult<Option<Vec<u64>>>;

/// Whether the pool has the handle; `None` where it was not listed yet.
fn known(library: &str, ordinal: i32, handle: u64) -> Option<bool> {
    let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let pool = pools.iter().find(|pool| pool.library == library && pool.ordinal == ordinal)?;
    Some(pool.handles.binary_search(&handle).is_ok())
}

fn torchs(py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>> {
    let Some(torch) = imported(py, intern!(py, "torch"))? else { return Ok(None) };
    let cuda = torch.getattr("cuda")?;
    if !cuda.call_method0("is_initialized")?.is_truthy()? {
        return Ok(None);
    }
    let kind = cuda.getattr("Stream")?;
    let (least, greatest): (i64, i64) = kind.call_method0("priority_range")?.extract()?;
    let mut all = Vec::new();
    for priority in greatest..=least {
        all.extend(round(|| kind.call1((ordinal, priority))?.getattr("cuda_stream")?.extract())?);
    }
    Ok(Some(all))
}

fn jaxs(py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>> {
    let Some(jax) = imported(py, intern!(py, "jax"))? else { return Ok(None) };
    let begun = jax.getattr("_src").and_then(|source| {
        source.getattr("xla_bridge")?.call_method0("backends_are_initialized")
    })?;
    if !begun.is_truthy()? {
        return Ok(None);
    }
    for device in jax.call_method1("local_devices", (py.None(), "gpu"))?.try_iter()? {
        let device = device?;
        if device.getattr("local_hardware_id")?.extract::<i32>()? == ordinal {
            let next = || device.call_method0("get_stream_for_external_ready_events")?.extract();
            return round(next).map(Some);
        }
    }
    Ok(None)
}

/// What `next` hands out in turn, once each.
fn round(next: impl Fn() -> PyResult<u64>) -> PyResult<Vec<u64>> {
    let mut all = vec![next()?];
    loop {
        let one = next()?;
        if one == all[0] || all.len() == MOST {
            break;
        }
        all.push(one);
    }
    // Once more, which leaves the turn as it was, and shows what another thread took out of it meanwhile.
    for _ in 1..all.len() {
        let one = next()?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(all)
}
