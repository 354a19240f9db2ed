//! Handles of streams that their libraries never destroy: PyTorch's pools, and the streams on which JAX asks for arrays
//! to be ready. The libraries hand out these streams in turn. The bridge asks for whole rounds, to leave the turn as it
//! was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::device::Place;
use crate::driver::Handle;
use crate::order;
use crate::py::interpreter::answered;
use crate::py::library::{self, StreamPool};
use crate::py::this_thread::DOING;

/// A library's streams on a device, sorted by handle.
struct Listed {
    pool: usize,
    ordinal: i32,
    handles: Vec<u64>,
}

struct Pools {
    listed: Mutex<Vec<Listed>>,
    /// Whether any listed pool's library computes on streams outside the pool ([`StreamPool::is_apart`]).
    has_apart: AtomicBool,
}

static POOLS: Pools = Pools { listed: Mutex::new(Vec::new()), has_apart: AtomicBool::new(false) };

/// More streams than any library hands out in turn.
const MOST: usize = 256;

/// Whether `handle` is in a library's pool, as far as the bridge can list the pools. False on a simulated GPU.
#[inline]
pub(super) fn has(py: Python<'_>, driver: &Handle, handle: u64, ordinal: i32) -> PyResult<bool> {
    if !matches!(driver, Handle::Cuda) {
        return Ok(false);
    }
    if DOING.with(|doing| doing.pooled.get()) == Some((handle, ordinal)) {
        return Ok(true);
    }
    let has = is_listed(py, driver, handle, ordinal)?;
    if has {
        DOING.with(|doing| doing.pooled.set((handle, ordinal)));
    }
    Ok(has)
}

fn is_listed(py: Python<'_>, driver: &Handle, handle: u64, ordinal: i32) -> PyResult<bool> {
    let driver = driver.get()?;
    for (at, pool) in library::pools().iter().enumerate() {
        if let Some(known) = known(at, ordinal, handle) {
            if known {
                return Ok(true);
            }
            continue;
        }
        // A library that makes its pool now leaves its context current.
        let list = order::within(driver, Place::gpu(ordinal), |_| pool.list(py, ordinal));
        let Some(mut handles) = answered(py, list)?.flatten() else { continue };
        handles.sort_unstable();
        let has = handles.binary_search(&handle).is_ok();
        POOLS.has_apart.fetch_or(pool.is_apart(), Ordering::Relaxed);
        POOLS.listed.lock().unwrap_or_else(PoisonError::into_inner).push(Listed {
            pool: at,
            ordinal,
            handles,
        });
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn has_apart() -> bool {
    POOLS.has_apart.load(Ordering::Relaxed)
}

/// The stream's pool, if its library computes on streams outside the pool. Before this function, call [`has`] with the
/// same stream.
pub(super) fn apart(handle: u64, ordinal: i32) -> Option<&'static dyn StreamPool> {
    let all = library::pools().iter().copied().enumerate();
    let of = |(at, pool): &(usize, &'static dyn StreamPool)| {
        pool.is_apart() && known(*at, ordinal, handle) == Some(true)
    };
    all.into_iter().find(of).map(|(_, pool)| pool)
}

/// Whether the pool's handles on the GPU include `handle`. `None` until [`is_listed`] has stored the pool's handles.
fn known(pool: usize, ordinal: i32, handle: u64) -> Option<bool> {
    let listed = POOLS.listed.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = listed.iter().find(|listed| listed.pool == pool && listed.ordinal == ordinal)?;
    Some(listed.handles.binary_search(&handle).is_ok())
}

/// The streams that two rounds of `next` return, without duplicates.
pub(crate) fn round(next: impl Fn() -> PyResult<u64>) -> PyResult<Vec<u64>> {
    let mut all = vec![next()?];
    loop {
        let one = next()?;
        if one == all[0] || all.len() == MOST {
            break;
        }
        all.push(one);
    }
    // Another thread may have taken some streams of the first round, so go round a second time.
    for _ in 1..all.len() {
        let one = next()?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    Ok(all)
}
