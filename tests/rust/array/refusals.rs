use std::cell::Cell;

use cai_bridge::layout::Layout;
use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{
    Array, ByValue, Descriptor, Device, Dtype, Error, Grid, Kernel, OnHost, Result, scope,
};

use crate::tables::{rows, table, text};

static BARE: Kernel = Kernel::new("bare", "");

fn refusal(call: &str) -> Option<Error> {
    let cuda = SimulatedCuda::new(2);
    let stream = cuda.stream(0).unwrap();
    let x: Array = Array::from_host(&stream, &[1.0_f32; 4], &[4]).unwrap().into();
    let done: Result<()> = match call {
        "view of another type" => scope(&stream, |s| x.on(s)?.view::<f64>().map(drop)),
        "view of every other element" => {
            let x = x.strided(0, &[2], &[2]).unwrap();
            scope(&stream, |s| x.on(s)?.view::<f32>().map(drop))
        }
        "write read-only memory" => x.clone().into_readonly().writable().map(drop),
        "a layout of items of no bytes" => Layout::from_bytes(&[2], Some(&[4]), 0).map(drop),
        "a layout of another type" => {
            let (layout, double) =
                (Layout::from_elements(&[2], None, 4), Dtype::from_name("float64"));
            let gpu = Device::cuda(0);
            Descriptor::new(4096, double.unwrap(), layout.unwrap(), gpu, false).map(drop)
        }
        "reshape to another size" => x.reshape(&[3]).map(drop),
        "strides that reach outside" => x.strided(1, &[4], &[1]).map(drop),
        "a stream of another device" => scope(&cuda.stream(1).unwrap(), |s| x.on(s).map(drop)),
        "a stream of another machine" => {
            x.to_dlpack(&SimulatedCuda::new(1).stream(0).unwrap()).map(drop).unwrap_err();
            scope(&SimulatedCuda::new(1).stream(0).unwrap(), |s| x.on(s).map(drop))
        }
        "a kernel without a function" => scope(&stream, |s| {
            let x = x.on(s)?.view::<f32>()?;
            // SAFETY: nothing is launched.
            unsafe { s.launch(&BARE, Grid::cover(1, 1), (&x,)) }
        }),
        "work that does not wait" => unordered(&cuda, &x),
        "a stand-in that stores in a View" => stand_in(&cuda, &x, &STORES_IN_A_VIEW, false),
        "a stand-in that stores too few values" => stand_in(&cuda, &x, &STORES_TOO_FEW, true),
        "a stand-in for another array" => stand_in(&cuda, &x, &TAKES_DOUBLES, false),
        "a stand-in for another number" => stand_in(&cuda, &x, &TAKES_A_SIGNED_NUMBER, false),
        "a stand-in for an array where there is a value" => {
            stand_in(&cuda, &x, &TAKES_AN_ARRAY, false)
        }
        "a stand-in for one argument more" => stand_in(&cuda, &x, &TAKES_ONE_MORE, false),
        "only with an interpreter" | "only with cudarc" => return None,
        other => panic!("no such call: {other}"),
    };
    drop(x);
    // Memory that was read without an order is freed without one, too.
    cuda.reports().unwrap();
    Some(done.expect_err(call))
}

/// Reads a view that was ordered on another stream, by its address.
fn unordered(cuda: &SimulatedCuda, x: &Array) -> Result<()> {
    let other = cuda.stream(0)?;
    let tensor = x.to_dlpack(&cuda.stream(0)?)?;
    // SAFETY: that the stream is the wrong one is what this is about, and no device is at risk.
    let wrong = unsafe { Array::from_dlpack(tensor, &other) }?;
    super::copied(&other, &wrong)?;
    cuda.check()
}

#[test]
fn what_is_refused_says_what_was_wrong_what_it_was_and_what_is_allowed() {
    let mut checked = 0;
    for row in rows(&table("refusals.toml"), "rust") {
        let Some(error) = refusal(text(&row, "call")) else { continue };
        assert_eq!(error.kind().name(), text(&row, "kind"), "{row:?}");
        assert_eq!(error.field(), text(&row, "field"), "{row:?}");
        assert!(error.got().contains(text(&row, "got")), "{error}");
        checked += 1;
    }
    assert!(checked > 7, "{checked}");
}

thread_local! {
    /// What the last stand-in was refused.
    static REFUSED: Cell<Option<Error>> = const { Cell::new(None) };
}

/// A kernel whose stand-in is refused what it asks for.
macro_rules! refused {
    ($name:ident: $ask:expr) => {
        static $name: Kernel = Kernel::new("refused", "").on_host(|call| {
            let ask: fn(&OnHost<'_>) -> Result<()> = $ask;
            let done = ask(call);
            REFUSED.set(done.clone().err());
            done
        });
    };
}

refused!(STORES_IN_A_VIEW: |call| call.store(0, &[0.0_f32; 4]));
refused!(STORES_TOO_FEW: |call| call.store(0, &[0.0_f32; 2]));
refused!(TAKES_DOUBLES: |call| call.values::<f64>(0).map(drop));
refused!(TAKES_A_SIGNED_NUMBER: |call| call.scalar::<i32>(1).map(drop));
refused!(TAKES_AN_ARRAY: |call| call.values::<f32>(2).map(drop));
refused!(TAKES_ONE_MORE: |call| call.value::<u8>(3).map(drop));

/// What `kernel` is refused with an array, a number and a value; the device reports it, and the array is as it was.
fn stand_in(cuda: &SimulatedCuda, x: &Array, kernel: &'static Kernel, writes: bool) -> Result<()> {
    let stream = cuda.stream(0)?;
    let (grid, pair) = (Grid::cover(1, 1), ByValue((1_u8, 2_u8)));
    scope(&stream, |s| {
        if writes {
            let mut x = x.clone().writable()?;
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            // SAFETY: the stand-in alone runs.
            return unsafe { s.launch(kernel, grid, (&mut x, 1_u32, pair)) };
        }
        let x = x.on(s)?.view::<f32>()?;
        // SAFETY: as above.
        unsafe { s.launch(kernel, grid, (&x, 1_u32, pair)) }
    })?;
    assert_eq!(x.to_vec::<f32>(&stream)?, [1.0; 4]);
    let found = cuda.check().unwrap_err();
    let error = REFUSED.take().unwrap();
    let reported = format!("failed kernel: 'refused' on the simulated device: {error}");
    assert!(reported.starts_with(found.got().trim_end_matches("...")), "{found}");
    Err(error)
}

/// Panics.
static PANICKING: Kernel = Kernel::new("panicking", "").on_host(|_| panic!("on purpose"));

#[test]
fn a_stand_in_that_panics_is_reported() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let mut x = Array::from_host(&stream, &[1.0_f32], &[1]).unwrap();
    scope(&stream, |s| {
        let mut x = x.on_mut(s)?.view_mut::<f32>()?;
        // SAFETY: the stand-in alone runs.
        unsafe { s.launch(&PANICKING, Grid::cover(1, 1), (&mut x,)) }
    })
    .unwrap();
    std::panic::catch_unwind(|| cuda.check()).unwrap_err();
    let found = cuda.check().unwrap_err();
    assert_eq!(
        found.got(),
        "failed kernel: 'panicking' on the simulated device: a panic: on purpose"
    );
    cuda.check().unwrap();
}

#[test]
fn a_call_that_was_to_be_left_out_and_does_not_come_is_reported_once() {
    let cuda = SimulatedCuda::new(1);
    let (mine, theirs) = (cuda.stream(0).unwrap(), cuda.stream(0).unwrap());
    let x = Array::from_host(&mine, &[1.0_f32], &[1]).unwrap();
    cuda.suppress("cuStreamWaitEvent", 7).unwrap();
    assert_eq!(x.to_vec::<f32>(&theirs).unwrap(), [1.0]);
    let found = cuda.check().unwrap_err();
    assert!(found.got().starts_with("the call number 7 of cuStreamWaitEvent, which"), "{found}");
    assert!(found.got().ends_with("2 were made since"), "{found}");
    cuda.check().unwrap();
}
