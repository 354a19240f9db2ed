//! Scopes that work on one memory by turns: whoever queues work waits for what the others have queued.

use std::sync::Barrier;

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, ArrayMut, Error, Grid, scope};

use super::{ADD, COPY, two_streams};

/// Two arrays of one memory.
fn twice(cuda: &SimulatedCuda) -> (ArrayMut, ArrayMut) {
    let x = Array::from_host(&cuda.stream(0).unwrap(), &[0.0_f32; 4], &[4]).unwrap();
    let y = (*x).clone().writable().unwrap();
    (x, y)
}

#[test]
fn two_views_of_one_memory_that_are_written_by_turns_are_in_order() {
    let (cuda, a, b) = two_streams();
    let (mut x, mut y) = twice(&cuda);
    scope(&a, |a| {
        let mut x = x.on_mut(a)?.view_mut::<f32>()?;
        scope(&b, |b| {
            let mut y = y.on_mut(b)?.view_mut::<f32>()?;
            for _ in 0..3 {
                // SAFETY: the stand-in alone runs.
                unsafe { a.launch(&ADD, Grid::cover(1, 1), (&mut x,)) }?;
                // SAFETY: as above.
                unsafe { b.launch(&ADD, Grid::cover(1, 1), (&mut y,)) }?;
            }
            Ok::<_, Error>(())
        })?;
        // SAFETY: as above.
        unsafe { a.launch(&ADD, Grid::cover(1, 1), (&mut x,)) }
    })
    .unwrap();
    assert_eq!(x.to_vec::<f32>(&b).unwrap(), [7.0; 4]);
    cuda.check().unwrap();
}

#[test]
fn a_view_that_is_read_while_another_scope_writes_is_in_order() {
    let (cuda, a, b) = two_streams();
    let (mut x, y) = twice(&cuda);
    let mut seen = Array::empty::<f32>(&a, &[4]).unwrap();
    scope(&a, |a| {
        let y = (*y).on(a)?.view::<f32>()?;
        let mut seen = seen.on_mut(a)?.view_mut::<f32>()?;
        scope(&b, |b| {
            let mut x = x.on_mut(b)?.view_mut::<f32>()?;
            // SAFETY: the stand-in alone runs.
            unsafe { b.launch(&ADD, Grid::cover(1, 1), (&mut x,)) }?;
            // SAFETY: as above.
            unsafe { a.launch(&COPY, Grid::cover(1, 1), (&y, &mut seen)) }
        })
    })
    .unwrap();
    assert_eq!(seen.to_vec::<f32>(&b).unwrap(), [1.0; 4]);
    cuda.check().unwrap();
}

#[test]
fn threads_that_write_one_memory_by_views_that_they_keep_are_in_order() {
    const THREADS: usize = 4;
    const LAUNCHES: usize = 50;
    let (cuda, together) = (SimulatedCuda::new(1), Barrier::new(THREADS));
    let (x, _) = twice(&cuda);
    std::thread::scope(|threads| {
        for _ in 0..THREADS {
            let (cuda, mut mine) = (&cuda, (*x).clone().writable().unwrap());
            let together = &together;
            threads.spawn(move || {
                let stream = cuda.stream(0).unwrap();
                let done = scope(&stream, |s| {
                    let mut mine = mine.on_mut(s)?.view_mut::<f32>()?;
                    (0..LAUNCHES).try_for_each(|_| {
                        together.wait();
                        // SAFETY: the stand-in alone runs.
                        unsafe { s.launch(&ADD, Grid::cover(1, 1), (&mut mine,)) }
                    })
                });
                done.unwrap();
            });
        }
    });
    let all = f32::from(u16::try_from(THREADS * LAUNCHES).unwrap());
    assert_eq!(x.to_vec::<f32>(&cuda.stream(0).unwrap()).unwrap(), [all; 4]);
    cuda.check().unwrap();
}
