use cai_bridge::driver::simulated::Call;
use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, Error, ErrorKind, scope};

use super::{add, add_in, assert_over, copied, two_streams};
use crate::alive::calls;

#[test]
fn captured_work_runs_when_its_graph_does_and_a_capture_that_fails_or_panics_is_over() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let mut x = Array::from_host(&stream, &[1.0_f32, 2.0], &[2]).unwrap();
    let graph = cuda.capture(&stream, || add(&stream, &mut x)).unwrap();
    for more in [0.0, 1.0, 2.0] {
        assert_eq!(x.to_vec::<f32>(&stream).unwrap(), [1.0 + more, 2.0 + more]);
        graph.launch(&stream).unwrap();
    }
    let work = || Err(Error::new(ErrorKind::Misuse, "on purpose"));
    assert_eq!(cuda.capture(&stream, work).unwrap_err().got(), "on purpose");
    let work = || cuda.capture(&stream, || -> Result<(), Error> { panic!("on purpose") });
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err();
    // A wait of the host spoils a capture.
    let work = || x.to_vec::<f32>(&stream).map(drop);
    cuda.capture(&stream, work).unwrap_err();
    assert_eq!(x.to_vec::<f32>(&stream).unwrap(), [4.0, 5.0]);
    cuda.check().unwrap();
}

#[test]
fn memory_that_is_dropped_while_a_scope_of_another_stream_reads_it_is_freed_in_order_and_once() {
    let (cuda, home, mine) = two_streams();
    for round in 0..100_u16 {
        let x = Array::from_host(&home, &[f32::from(round); 4], &[4]).unwrap();
        let y = copied(&mine, &x).unwrap();
        drop(x); // the pool hands the block to the next round
        if round % 50 == 0 {
            assert_eq!(y.to_vec::<f32>(&mine).unwrap(), [f32::from(round); 4]);
        }
    }
    assert_over(&cuda);
}

#[test]
fn a_scope_that_fails_or_panics_gives_the_memory_back_in_order_all_the_same() {
    let (cuda, home, mine) = two_streams();
    for panics in [false, true] {
        let x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
        let work = std::panic::AssertUnwindSafe(|| {
            scope(&mine, |s| {
                x.on(s)?;
                copied(&mine, &x)?;
                assert!(!panics, "on purpose");
                Err::<(), _>(Error::new(ErrorKind::Misuse, "on purpose"))
            })
        });
        match std::panic::catch_unwind(work) {
            Ok(failed) => assert_eq!(failed.unwrap_err().kind(), ErrorKind::Misuse),
            Err(_) => assert!(panics),
        }
        drop(x);
    }
    assert_over(&cuda);
}

#[test]
fn a_wait_that_fails_at_the_end_is_an_error_and_is_made_by_a_later_scope() {
    let (cuda, home, mine) = two_streams();
    let x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    let failed = scope(&mine, |s| {
        x.on(s)?;
        // All of them, for scopes of other tests try again meanwhile.
        for nth in 1..100 {
            cuda.machine().fail("cuStreamWaitEvent", nth, 2).unwrap();
        }
        Ok::<_, Error>(())
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::DriverCall);
    drop(x);
    assert_eq!(cuda.bytes_in_use(), 16, "kept, since the wait is still to be made");
    cuda.machine().clear_faults();
    while cuda.bytes_in_use() > 0 {
        scope(&mine, |_| Ok::<_, Error>(())).unwrap();
    }
    cuda.check().unwrap();
}

#[test]
fn a_wait_that_fails_once_at_the_end_is_made_at_once_and_is_no_error() {
    let (cuda, home, mine) = two_streams();
    let mut x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    scope(&mine, |s| {
        add_in(s, &mut x)?;
        cuda.machine().fail("cuStreamWaitEvent", 1, 2).unwrap();
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(x.to_vec::<f32>(&home).unwrap(), [2.0; 4]);
    drop(x);
    assert_over(&cuda);
}

#[test]
fn an_array_without_elements_needs_neither_memory_nor_waits() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let x = Array::empty::<f32>(&stream, &[0, 3]).unwrap();
    assert_eq!((x.ptr(), cuda.bytes_in_use()), (0, 0));
    assert_eq!(copied(&stream, &x).unwrap().to_vec::<f32>(&stream).unwrap(), [0.0; 0]);
}

#[test]
fn a_scope_that_writes_what_it_took_to_read_runs_after_those_that_read_it_meanwhile() {
    let (cuda, home, a) = two_streams();
    let b = cuda.stream(0).unwrap();
    let mut x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    let y: Array = (*x).clone();
    let seen = scope(&a, |a| {
        y.on(a)?;
        let seen = copied(&b, &y)?;
        add_in(a, &mut x)?;
        Ok::<_, Error>(seen)
    })
    .unwrap();
    assert_eq!(seen.to_vec::<f32>(&b).unwrap(), [1.0; 4]);
    cuda.check().unwrap();
}

#[test]
fn a_scope_that_goes_on_when_a_tensor_of_its_memory_is_deleted_runs_after_the_tensors_work() {
    let (cuda, home, a) = two_streams();
    let b = cuda.stream(0).unwrap();
    let mut x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    let seen = scope(&a, |a| {
        add_in(a, &mut x)?;
        // SAFETY: the tensor was made for that stream, and nothing else is queued until it is deleted.
        let theirs = unsafe { Array::from_dlpack(x.to_dlpack(&b)?, &b) }?;
        let seen = copied(&b, &theirs)?;
        drop(theirs);
        add_in(a, &mut x)?;
        Ok::<_, Error>(seen)
    })
    .unwrap();
    assert_eq!(seen.to_vec::<f32>(&b).unwrap(), [2.0; 4]);
    cuda.check().unwrap();
}

#[test]
fn scopes_that_only_read_do_not_wait_for_each_other() {
    let (cuda, home, a) = two_streams();
    let b = cuda.stream(0).unwrap();
    let x: Array = Array::from_host(&home, &[1.0_f32], &[1]).unwrap().into();
    scope(&a, |s| {
        x.on(s)?;
        cuda.machine().clear_calls();
        scope(&b, |s| x.on(s).map(drop))
    })
    .unwrap();
    let waits = calls(cuda.machine(), Call::StreamWaitEvent);
    assert_eq!(waits, 3, "the inner one's beginning, its end, and the outer one's end");
}
