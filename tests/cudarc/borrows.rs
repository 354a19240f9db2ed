//! Views that cudarc borrows: what is done with them on other streams is waited for, whatever fails or is forgotten.

use std::sync::Arc;

use cai_bridge::cudarc::driver::{CudaContext, CudaStream};
use cai_bridge::{Array, Error, ErrorKind, Grid, scope};

use super::{KERNEL, Test, launch};

/// Of the driver's calls from now on as many fail: records, and waits.
fn fail(records: i32, waits: i32) {
    // SAFETY: the driver of stubs, which is loaded, and a function of that type.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        driver.get::<unsafe extern "C" fn(i32, i32)>(b"fail").unwrap()(records, waits);
        std::mem::forget(driver);
    }
}

const ALL: i32 = i32::MAX;

/// Makes the waits that are still to be made.
fn later(stream: &Arc<CudaStream>) -> Result<(), Error> {
    scope(stream, |_| Ok(()))
}

/// Borrows `x` on `stream`, works there, and forgets the borrow or not.
fn borrow(stream: &Arc<CudaStream>, x: &Array, forgets: bool) -> Result<(), Error> {
    let mut x = x.clone().writable()?;
    scope(stream, |s| {
        let mut x = x.on_mut(s)?.view_mut::<f32>()?;
        let mut borrowed = x.cuda_mut(s)?;
        stream.memset_zeros(&mut borrowed.view_mut())?;
        if forgets {
            std::mem::forget(borrowed);
        }
        Ok(())
    })
}

pub(super) const TESTS: [(&str, Test); 11] = [
    ("two threads that borrow one memory", |mine, other| {
        let x: Array = Array::empty::<f32>(mine, &[4])?.into();
        let many = |stream: &Arc<CudaStream>| {
            for round in 0..200 {
                while let Err(error) = borrow(stream, &x, round % 3 == 0) {
                    assert_eq!(error.kind(), ErrorKind::Borrowed, "{error}");
                    std::thread::yield_now();
                }
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| many(other));
            many(mine);
        });
        Ok(())
    }),
    ("two borrows of one memory in one scope", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        let (mut y, z) = ((*x).clone().writable()?, (*x).clone());
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut y = y.on_mut(s)?.view_mut::<f32>()?;
            let mut one = x.cuda_mut(s)?;
            other.memset_zeros(&mut one.view_mut())?;
            let refused = y.cuda_mut(s).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "{refused}");
            // SAFETY: the driver of stubs launches nothing.
            let refused = unsafe { s.launch(&KERNEL, Grid::cover(4, 4), (&mut y,)) }.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "{refused}");
            let refused = z.to_dlpack(other).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "{refused}");
            drop(one);
            mine.memset_zeros(&mut y.cuda_mut(s)?.view_mut())?;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }),
    ("borrows of two parts of one memory in one scope", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let (mut one, mut two) = x.split_at_mut(0, 2)?;
            let (mut one, mut two) = (one.cuda_mut(s)?, two.cuda_mut(s)?);
            mine.memset_zeros(&mut one.view_mut())?;
            other.memcpy_dtod(&one.view_mut().as_view(), &mut two.view_mut())?;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }),
    ("a borrow that is used on a stream of another context object, which is joined", |mine, _| {
        let apart = CudaContext::new(0)?;
        assert!(apart == *mine.context() && !Arc::ptr_eq(&apart, mine.context()));
        // SAFETY: that context has no slice.
        unsafe { apart.disable_event_tracking() };
        let apart = apart.new_stream()?;
        let mut x = Array::empty::<f32>(mine, &[4])?;
        launch(mine, &mut x)?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut borrowed = x.cuda_mut(s)?;
            apart.join(mine)?;
            let queued = apart.memset_zeros(&mut borrowed.view_mut());
            mine.join(&apart)?;
            Ok::<_, Error>(queued?)
        })?;
        launch(mine, &mut x)?;
        Ok(())
    }),
    ("a borrow that is forgotten", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        let mut y = (*x).clone().writable()?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut borrowed = x.cuda_mut(s)?;
            other.memset_zeros(&mut borrowed.view_mut())?;
            std::mem::forget(borrowed);
            let refused = y.on_mut(s).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "{refused}");
            Ok::<_, Error>(())
        })?;
        launch(mine, &mut x)?;
        Ok(())
    }),
    ("a borrow that is forgotten in a scope that panics", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        let work = std::panic::AssertUnwindSafe(|| {
            scope(mine, |s| -> Result<(), Error> {
                let mut x = x.on_mut(s)?.view_mut::<f32>()?;
                let mut borrowed = x.cuda_mut(s)?;
                other.memset_zeros(&mut borrowed.view_mut())?;
                std::mem::forget(borrowed);
                panic!("on purpose")
            })
        });
        std::panic::catch_unwind(work).unwrap_err();
        launch(mine, &mut x)?;
        Ok(())
    }),
    ("a wait at the end of a borrow that fails", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        let failed = scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut borrowed = x.cuda_mut(s)?;
            other.memset_zeros(&mut borrowed.view_mut())?;
            fail(0, ALL);
            drop(borrowed);
            let refused = x.cuda_mut(s).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "its wait is still to be made");
            Ok::<_, Error>(())
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::DriverCall);
        drop(x); // the memory is kept
        fail(0, 0);
        later(mine)?;
        Ok(())
    }),
    ("a record of cudarc's that fails, of which another call is told", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut borrowed = x.cuda_mut(s)?;
            fail(1, 0);
            other.memset_zeros(&mut borrowed.view_mut())?;
            fail(0, ALL);
            drop(borrowed);
            fail(0, 0);
            mine.context().check_err().unwrap_err(); // as without the crate
            Ok::<_, Error>(())
        })?;
        launch(mine, &mut x)?;
        Ok(())
    }),
    ("a shared slice whose last record failed, of which another call is told", |mine, other| {
        let mut slice = mine.alloc_zeros::<f32>(4)?;
        fail(1, 0);
        other.memset_zeros(&mut slice)?;
        let x = Array::from_shared(Arc::new(slice))?;
        mine.context().check_err().unwrap_err(); // as without the crate
        scope(mine, |s| {
            let x = x.on(s)?.view::<f32>()?;
            // SAFETY: the driver of stubs launches nothing.
            unsafe { s.launch(&KERNEL, Grid::cover(4, 4), (&x,)) }
        })?;
        Ok(())
    }),
    ("a slice that becomes an array while waits fail", |mine, other| {
        let (slice, mut to) = (mine.alloc_zeros::<f32>(4)?, other.alloc_zeros::<f32>(4)?);
        other.memcpy_dtod(&slice, &mut to)?;
        fail(0, ALL);
        let refused = Array::from_slice(slice).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::DriverCall);
        fail(0, 0);
        Ok(())
    }),
    ("a view that cudarc has while another scope uses its memory", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        let mut y = (*x).clone().writable()?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let mut borrowed = x.cuda_mut(s)?;
            let refused = scope(other, |o| y.on_mut(o).map(drop)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Borrowed, "{refused}");
            mine.memset_zeros(&mut borrowed.view_mut())?;
            drop(borrowed);
            scope(other, |o| {
                let mut y = y.on_mut(o)?.view_mut::<f32>()?;
                Ok::<_, Error>(other.memset_zeros(&mut y.cuda_mut(o)?.view_mut())?)
            })?;
            mine.memset_zeros(&mut x.cuda_mut(s)?.view_mut())?;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }),
];
