use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::driver::simulated::{Call, codes};
use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, DeviceStream, Dtype, Element, Owner, Place, WorkStream, scope};

use super::{assert_over, two_streams};
use crate::alive::calls;

struct Counted {
    memory: Array,
    stream: DeviceStream,
    dropped: Arc<AtomicUsize>,
    /// How it panics where it is dropped.
    panics: Option<fn()>,
}

/// What a panic carries, which panics where it is dropped.
struct Carried;

impl Drop for Carried {
    fn drop(&mut self) {
        std::panic::panic_any(7);
    }
}

/// The same without end.
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        std::panic::panic_any(Self);
    }
}

// SAFETY: the memory's own description.
unsafe impl Owner for Counted {
    type Stream = DeviceStream;

    fn stream(&self) -> &DeviceStream {
        &self.stream
    }

    fn ptr(&self) -> u64 {
        self.memory.ptr()
    }

    fn dtype(&self) -> Dtype {
        self.memory.dtype()
    }

    fn shape(&self) -> &[i64] {
        self.memory.shape()
    }

    fn readonly(&self) -> bool {
        true
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        if let Some(panic) = self.panics {
            panic();
        }
    }
}

/// An owner of four floats, and how often it was dropped.
fn counted(stream: &DeviceStream, panics: Option<fn()>) -> (Counted, Arc<AtomicUsize>) {
    let memory = Array::from_host(stream, &[1.0_f32; 4], &[4]).unwrap().into();
    let dropped = Arc::new(AtomicUsize::new(0));
    (Counted { memory, stream: stream.clone(), dropped: Arc::clone(&dropped), panics }, dropped)
}

#[test]
fn an_owner_is_dropped_once_when_the_last_user_is_done() {
    let (cuda, stream, theirs) = two_streams();
    let (owner, dropped) = counted(&stream, None);
    let x = Array::from_owner(owner).unwrap();
    let count = || dropped.load(Ordering::SeqCst);
    let (part, tensor) = (x.reshape(&[2, 2]).unwrap(), x.to_dlpack(&theirs).unwrap());
    drop(x);
    drop(part);
    assert_eq!(count(), 0);
    drop(tensor);
    assert_eq!((count(), cuda.bytes_in_use()), (1, 0));
    cuda.check().unwrap();
}

#[test]
fn an_owner_that_panics_does_not_take_the_consumer_along_that_deletes_its_tensor() {
    let panics: [fn(); 3] = [
        || panic!("on purpose"),
        || std::panic::panic_any(Carried),
        || std::panic::panic_any(Endless),
    ];
    for panics in panics {
        let cuda = SimulatedCuda::new(1);
        let stream = cuda.stream(0).unwrap();
        let (owner, dropped) = counted(&stream, Some(panics));
        let tensor = Array::from_owner(owner).unwrap().to_dlpack(&stream).unwrap().into_raw();
        // SAFETY: the tensor that was given up above, deleted once.
        unsafe { ((*tensor).deleter.unwrap())(tensor) };
        assert_eq!((dropped.load(Ordering::SeqCst), cuda.bytes_in_use()), (1, 0));
    }
}

#[test]
fn where_the_device_has_no_pools_an_empty_array_is_taken_and_freed_by_the_host() {
    let (cuda, stream, theirs) = two_streams();
    cuda.fail("cuMemAllocAsync", 1, codes::NOT_SUPPORTED).unwrap();
    let mut x = Array::from_host(&stream, &[1.0_f32; 4], &[4]).unwrap();
    super::add(&theirs, &mut x).unwrap();
    assert_eq!(cuda.bytes_in_use(), 16);
    drop(x); // the host waits for both streams
    assert_eq!(calls(cuda.machine(), Call::MemFree), 1);
    assert_over(&cuda);
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Wide(u64);

// SAFETY: any bytes are a value; the size is not that of the type that it names, which is what the test is about.
unsafe impl Element for Wide {
    const NAME: &'static str = "float32";
}

#[test]
fn an_element_type_of_another_size_than_its_name_says_is_refused() {
    let stream = SimulatedCuda::new(1).stream(0).unwrap();
    let refused = Array::empty::<Wide>(&stream, &[2]).unwrap_err();
    assert_eq!(refused.got(), "float32 of 8 bytes");
    assert_eq!(Wide(1).0, 1);
}

/// The legacy default stream of another runtime.
#[derive(Clone)]
struct Other;

// SAFETY: a default stream lives as long as its context.
unsafe impl WorkStream for Other {
    fn handle(&self) -> u64 {
        1
    }

    fn place(&self) -> Place {
        Place::gpu(0)
    }
}

#[test]
fn a_stream_of_another_runtime_gets_the_orders_but_no_launches() {
    let cuda = SimulatedCuda::new(1);
    let home = cuda.stream(0).unwrap();
    let x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    let refused = scope(&Other, |s| {
        let view = x.on(s)?.view::<f32>()?;
        // SAFETY: nothing is launched.
        unsafe { s.launch(&super::ADD, cai_bridge::Grid::cover(1, 1), (&view,)) }
    });
    assert_eq!(refused.unwrap_err().got(), "a stream of another runtime");
    cuda.check().unwrap();
}
