//! Parts of a view, and values that a kernel takes whole.

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, ByValue, Error, ErrorKind, Grid, Kernel, scope};

use super::{ADD, COPY, two_streams};

#[test]
fn parts_of_a_view_are_written_by_one_kernel_or_by_two() {
    let (cuda, home, mine) = two_streams();
    for (axis, apart, wanted) in [(0, 8, [1.0, 2.0, 2.0, 3.0]), (1, 4, [2.0, 3.0, 4.0, 5.0])] {
        let mut x = Array::from_host(&home, &[1.0_f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        scope(&mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            let (mut before, mut after) = x.split_at_mut(axis, 1)?;
            assert_eq!((before.len(), after.len(), after.ptr() - before.ptr()), (2, 2, apart));
            let grid = Grid::cover(1, 1);
            // SAFETY: the stand-ins alone run.
            unsafe {
                if axis == 0 {
                    s.launch(&COPY, grid, (&*before, &mut after))?;
                } else {
                    s.launch(&ADD, grid, (&mut before,))?;
                }
                s.launch(&ADD, grid, (&mut after,))?;
            }
            drop((before, after));
            assert_eq!(x.len(), 4, "the whole is there again");
            Ok::<_, Error>(())
        })
        .unwrap();
        assert_eq!(x.to_vec::<f32>(&home).unwrap(), wanted);
    }
    cuda.check().unwrap();
}

#[test]
fn a_view_is_split_inside_its_extents_and_where_no_element_is_there_twice() {
    let stream = SimulatedCuda::new(1).stream(0).unwrap();
    let x: Array = Array::from_host(&stream, &[1_u8, 2, 3, 4, 5, 6], &[6]).unwrap().into();
    let split = |shape: &[i64], strides: &[i64], axis, at| {
        let offset = if strides[0] < 0 { 5 } else { 0 };
        let mut part = x.strided(offset, shape, strides).unwrap().writable().unwrap();
        scope(&stream, |s| {
            let mut view = part.on_mut(s)?.strided_mut::<u8>()?;
            let read = view.split_at(axis, at).map(|(a, b)| (a.len(), b.len()));
            let written = view.split_at_mut(axis, at).map(|(a, b)| (a.len(), b.len()));
            Ok::<_, Error>([read, written].map(|parts| parts.map_err(|error| error.kind())))
        })
        .unwrap()
    };
    let both = |lengths| [Ok(lengths); 2];
    assert_eq!(split(&[6], &[1], 0, 2), both((2, 4)));
    assert_eq!(split(&[6], &[-1], 0, 2), both((2, 4)));
    assert_eq!(split(&[3, 2], &[2, 1], 1, 2), both((6, 0)));
    assert_eq!(split(&[3, 2], &[2, 1], 0, 0), both((0, 6)));
    assert_eq!(split(&[0, 2], &[2, 1], 1, 1), both((0, 0)));
    assert_eq!(split(&[0, 5], &[1, 1 << 62], 1, 2), both((0, 0)));
    assert_eq!(split(&[2, 3], &[1, 2], 1, 1), both((2, 4)));
    let refused = [Err(ErrorKind::Reshape); 2];
    for (axis, at) in [(1, 0), (0, 7), (0, -1)] {
        assert_eq!(split(&[6], &[1], axis, at), refused, "{axis} {at}");
    }
    // Elements that are there twice may be in both parts.
    for strides in [[0, 1], [1, 1]] {
        assert_eq!(split(&[2, 3], &strides, 0, 1), [Ok((3, 3)), Err(ErrorKind::Reshape)]);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
struct Line {
    slope: f32,
    start: f64,
}

static FILL: Kernel = Kernel::new("fill", "").on_host(|call| {
    let Line { slope, start } = call.value(1)?;
    let [first, second] = call.value::<[u32; 2]>(2)?;
    call.store(0, &[start, f64::from(slope), f64::from(first), f64::from(second)])
});

/// Takes another structure than it is given.
static MISTAKEN: Kernel =
    Kernel::new("mistaken", "").on_host(|call| call.value::<[f32; 4]>(1).map(drop));

#[test]
fn a_kernel_takes_structures_and_arrays_whole() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let mut x = Array::empty::<f64>(&stream, &[4]).unwrap();
    let launch = |kernel: &'static Kernel, x: &mut _| {
        scope(&stream, |s| {
            let x: &mut cai_bridge::ArrayMut = x;
            let mut x = x.on_mut(s)?.view_mut::<f64>()?;
            let line = ByValue(Line { slope: 0.5, start: 3.0 });
            // SAFETY: the stand-in alone runs.
            unsafe { s.launch(kernel, Grid::cover(4, 4), (&mut x, line, ByValue([7_u32, 8]))) }
        })
    };
    launch(&FILL, &mut x).unwrap();
    assert_eq!(x.to_vec::<f64>(&stream).unwrap(), [3.0, 0.5, 7.0, 8.0]);
    launch(&MISTAKEN, &mut x).unwrap();
    let found = cuda.check().unwrap_err();
    assert!(found.got().contains("parts::Line, taken as a value of type [f32; 4]"), "{found}");
}
