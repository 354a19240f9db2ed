use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, Error, Grid, Kernel, Result, scope};

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

/// Takes doubles, which it is not given.
static MISTAKEN: Kernel =
    Kernel::new("mistaken", "").on_host(|call| call.values::<f64>(0).map(drop));

/// Takes a signed number, and is given one without a sign.
static OF_ANOTHER_NUMBER: Kernel =
    Kernel::new("of another number", "").on_host(|call| call.scalar::<i32>(1).map(drop));

/// Writes one value too many.
static OF_ANOTHER_SIZE: Kernel =
    Kernel::new("of another size", "").on_host(|call| call.store(0, &[1.0_f32, 2.0]));

/// Panics.
static PANICKING: Kernel = Kernel::new("panicking", "").on_host(|_| panic!("on purpose"));

#[test]
fn a_stand_in_that_fails_or_panics_is_reported() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let mut x = Array::from_host(&stream, &[1.0_f32], &[1]).unwrap();
    let mut launch = |kernel| {
        scope(&stream, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            // SAFETY: the stand-in alone runs.
            unsafe { s.launch(kernel, Grid::cover(1, 1), (&mut x, 1_u32)) }
        })
        .unwrap();
    };
    launch(&MISTAKEN);
    let found = cuda.check().unwrap_err();
    assert_eq!(
        found.got(),
        "failed kernel: 'mistaken' on the simulated device: argument 0: got no float64; allowed: the element type \
         that the function takes"
    );
    for kernel in [&OF_ANOTHER_NUMBER, &OF_ANOTHER_SIZE] {
        launch(kernel);
        cuda.check().unwrap_err();
    }
    launch(&PANICKING);
    std::panic::catch_unwind(|| cuda.check()).unwrap_err();
    let found = cuda.check().unwrap_err();
    assert_eq!(
        found.got(),
        "failed kernel: 'panicking' on the simulated device: a panic: on purpose"
    );
    cuda.check().unwrap();
}
