//! Values that the crate copies from a slice of the program's: when the call has returned, they have been read.

use cai_bridge::Array;

use super::Test;

/// Tells the driver that the memory from `low` to below `high` is pinned.
fn pin(low: u64, high: u64) {
    // SAFETY: the driver of stubs, which is loaded, and a function of that type.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        driver.get::<unsafe extern "C" fn(u64, u64)>(b"pin").unwrap()(low, high);
        std::mem::forget(driver);
    }
}

/// The first byte of the last copy from the host.
fn copied() -> u8 {
    // SAFETY: the driver of stubs, which is loaded, a function of that type, and the driver's own bytes.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let first = *driver.get::<unsafe extern "C" fn() -> *const u8>(b"copied").unwrap()();
        std::mem::forget(driver);
        first
    }
}

pub(super) const TESTS: [(&str, Test); 1] =
    [("values from pageable, pinned and partly pinned memory", |mine, _| {
        for (from, to) in [(0, 0), (0, 8), (0, 4), (4, 8)] {
            let mut values = [7_u8; 8];
            let at = values.as_ptr().addr() as u64;
            pin(at + from, at + to);
            let x = Array::from_host(mine, &values, &[8])?;
            values.fill(9);
            assert_eq!(copied(), 7, "pinned from {from} to {to}: read late");
            drop((x, values));
        }
        Ok(())
    })];
