//! Streams that their libraries never destroy, by their handles: PyTorch's pools, and those that JAX asks
//! others to be ready on.
//!
//! Both hand their streams out in turn, so a whole round lists them. Two rounds are made, so that
//! the library's turn is where it was. A library that has not begun to use the device is not asked, since
//! that would make it begin.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::driver::Handle;
use crate::local::local;
use crate::py::interpreter::answered;
use crate::py::library::{self, Pool};

/// The streams of a library on a device, in order.
struct Listed {
    /// Which of the libraries' pools it is.
    pool: usize,
    ordinal: i32,
    handles: Vec<u64>,
}

static LISTED: Mutex<Vec<Listed>> = Mutex::new(Vec::new());
/// Whether there are streams among them of a library that computes elsewhere.
static HAS_APART: AtomicBool = AtomicBool::new(false);

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
    for (at, pool) in library::pools().iter().enumerate() {
        if let Some(known) = known(at, ordinal, handle) {
            if known {
                return Ok(true);
            }
            continue;
        }
        let Some(mut handles) = answered(py, pool.list(py, ordinal))?.flatten() else { continue };
        handles.sort_unstable();
        let has = handles.binary_search(&handle).is_ok();
        HAS_APART.fetch_or(pool.is_apart(), Ordering::Relaxed);
        LISTED.lock().unwrap_or_else(PoisonError::into_inner).push(Listed {
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

/// Whether any stream of a library that computes elsewhere is known.
pub(super) fn has_apart() -> bool {
    HAS_APART.load(Ordering::Relaxed)
}

/// The pool of a library that computes elsewhere, if the stream, of which [`has`] was asked, is of it.
pub(super) fn apart(handle: u64, ordinal: i32) -> Option<&'static dyn Pool> {
    let all = library::pools().iter().copied().enumerate();
    let of = |(at, pool): &(usize, &'static dyn Pool)| {
        pool.is_apart() && known(*at, ordinal, handle) == Some(true)
    };
    all.into_iter().find(of).map(|(_, pool)| pool)
}

/// Whether the pool has the handle; `None` where it was not listed yet.
fn known(pool: usize, ordinal: i32, handle: u64) -> Option<bool> {
    let listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = listed.iter().find(|listed| listed.pool == pool && listed.ordinal == ordinal)?;
    Some(listed.handles.binary_search(&handle).is_ok())
}

/// What `next` hands out in turn, once each.
pub(crate) fn round(next: impl Fn() -> PyResult<u64>) -> PyResult<Vec<u64>> {
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
