//! cudarc's streams beside the crate's, over a driver that says what it is asked (`driver.c`).
//!
//! Each test is a program of its own, whose driver says in which order streams record, wait and work. Whoever works
//! on memory must have waited for whoever worked on it before. Without a C compiler there is no such driver, and
//! nothing is tested.
#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

mod borrows;
mod host;

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cai_bridge::cudarc::driver::{CudaStream, sys};
use cai_bridge::{Array, ArrayMut, ByValue, DeviceStream, Error, ErrorKind, Grid, Kernel, scope};

/// The name of the test that this process is to run.
const TEST: &str = "CAI_BRIDGE_TEST_OF_CUDARC";

/// Works on one of the crate's streams, and on one of cudarc's.
type Test = fn(&Arc<CudaStream>, &Arc<CudaStream>) -> Result<(), Box<dyn std::error::Error>>;

static KERNEL: Kernel = Kernel::new("kernel", "");
static CUBIN: Kernel = Kernel::from_image("kernel", b"\x7fELF\0...");
static FATBIN: Kernel = Kernel::from_image("kernel", b"\x50\xED\x55\xBA\0...");
/// How often a kernel's code was asked for.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// What has no code at first: it fails, panics, and is compiled then.
static COMPILED: Kernel =
    Kernel::compiled("kernel", || match ASKED.fetch_add(1, Ordering::Relaxed) {
        0 => Err("no such header; ".repeat(100).into()),
        1 => panic!("no NVRTC"),
        _ => Ok(format!("// made {} run time", "at").into()),
    });
/// What the two threads of a launch read, and a kernel whose compiler waits for the other thread's launch.
static READ: OnceLock<Array> = OnceLock::new();
static COMPILED_BESIDE: Kernel = Kernel::compiled("kernel", || {
    let (told, done) = channel();
    std::thread::spawn(move || told.send(read(&own().unwrap(), &KERNEL)));
    done.recv_timeout(Duration::from_secs(20))??;
    Ok(b"// made at run time".to_vec())
});
static WITH_NUL: Kernel = Kernel::new("kernel", "a\0b");

fn launch(stream: &Arc<CudaStream>, x: &mut ArrayMut) -> Result<(), Error> {
    scope(stream, |s| {
        let mut x = x.on_mut(s)?.view_mut::<f32>()?;
        // SAFETY: the driver of stubs launches nothing.
        unsafe { s.launch(&KERNEL, Grid::cover(4, 4), (&mut x,)) }
    })
}

fn read(stream: &Arc<CudaStream>, kernel: &'static Kernel) -> Result<(), Error> {
    scope(stream, |s| {
        let x = READ.get().unwrap().on(s)?.view::<f32>()?;
        // SAFETY: the driver of stubs launches nothing.
        unsafe { s.launch(kernel, Grid::cover(4, 4), (&x,)) }
    })
}

const TESTS: [(&str, Test); 7] = [
    ("a view that cudarc uses on another stream", |mine, other| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        scope(mine, |s| {
            let mut x = x.on_mut(s)?.view_mut::<f32>()?;
            mine.memset_zeros(&mut x.cuda_mut(s)?.view_mut())?;
            other.memset_zeros(&mut x.cuda_mut(s)?.view_mut())?;
            mine.memset_zeros(&mut x.cuda_mut(s)?.view_mut())?;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }),
    ("a slice that becomes an array while another stream reads it", |mine, other| {
        let (slice, mut to) = (mine.alloc_zeros::<f32>(4)?, other.alloc_zeros::<f32>(4)?);
        other.memcpy_dtod(&slice, &mut to)?;
        let mut x = Array::from_slice(slice)?;
        scope(mine, |s| {
            mine.memset_zeros(&mut x.on_mut(s)?.view_mut::<f32>()?.cuda_mut(s)?.view_mut())?;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }),
    (
        "a slice that others have, too, and that is written when it is an array no more",
        |mine, other| {
            let third = mine.context().new_stream()?;
            let slice = Arc::new(mine.alloc_zeros::<f32>(4)?);
            let mut to = third.alloc_zeros::<f32>(4)?;
            let x = Array::from_shared(Arc::clone(&slice))?;
            third.memcpy_dtod(&*slice, &mut to)?;
            assert_eq!(x.writable().unwrap_err().kind(), ErrorKind::NotWritable);
            let x = Array::from_shared(Arc::clone(&slice))?;
            scope(other, |s| {
                let x = x.on(s)?.view::<f32>()?;
                // SAFETY: the driver of stubs launches nothing.
                unsafe { s.launch(&KERNEL, Grid::cover(4, 4), (&x,)) }
            })?;
            drop(x);
            let mut slice = Arc::into_inner(slice).ok_or("kept")?;
            mine.context().new_stream()?.memset_zeros(&mut slice)?;
            Ok(())
        },
    ),
    ("a kernel and the crate's streams after a reset of the device", |mine, _| {
        let mut x = Array::empty::<f32>(mine, &[4])?;
        launch(mine, &mut x)?;
        launch(mine, &mut x)?;
        // SAFETY: the driver of stubs changes a number.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(0) }.result()?;
        let later = own()?;
        assert_ne!(later.cu_stream(), mine.cu_stream(), "a stream of the context before");
        launch(&later, &mut Array::empty::<f32>(&later, &[4])?)?;
        std::mem::forget(x);
        Ok(())
    }),
    (
        "kernels of each kind of code, with shared memory, in a cluster and cooperative",
        |mine, _| {
            let mut x = Array::empty::<f32>(mine, &[4])?;
            let mut launch = |kernel: &'static Kernel, grid| {
                scope(mine, |s| {
                    let mut x = x.on_mut(s)?.view_mut::<f32>()?;
                    let line = ByValue([1.0_f32, 2.0]);
                    // SAFETY: the driver of stubs launches nothing.
                    unsafe { s.launch(kernel, grid, (&mut x, line)) }
                })
            };
            let grid = Grid::cover(4, 1);
            for why in ["no such header; ".repeat(100), "a panic: no NVRTC".to_owned()] {
                let refused = launch(&COMPILED, grid).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::KernelCode);
                assert_eq!((refused.field(), refused.got()), ("kernel kernel", &*why));
            }
            for kernel in [&CUBIN, &FATBIN, &COMPILED] {
                launch(kernel, grid)?;
                launch(kernel, grid.with_shared(100_000))?;
                launch(kernel, grid.with_shared(1000))?;
                launch(kernel, grid.with_cluster([2, 1, 1]))?;
                launch(kernel, grid.with_shared(1000).cooperative())?;
            }
            assert_eq!(ASKED.load(Ordering::Relaxed), 3, "compiled once");
            let refused = launch(&CUBIN, grid.with_cluster([3, 1, 1])).unwrap_err();
            assert_eq!(refused.driver_code().map(|driver| driver.code), Some(912));
            let refused = launch(&WITH_NUL, grid).unwrap_err();
            assert_eq!(refused.got(), "a NUL in Kernel(kernel, 3 bytes of code)");
            Ok(())
        },
    ),
    ("a compiler that waits for another thread's launch on the same memory", |mine, _| {
        let x = Array::from_slice(mine.alloc_zeros::<f32>(4)?)?;
        READ.set(x.into()).map_err(|_| "set before")?;
        Ok(read(mine, &COMPILED_BESIDE)?)
    }),
    ("slices between two of the crate's own streams", |mine, _| {
        let theirs = std::thread::spawn(own).join().map_err(|_| "a panic")??;
        assert_ne!(mine.cu_stream(), theirs.cu_stream());
        let slice = mine.alloc_zeros::<f32>(4)?;
        let mut to = theirs.alloc_zeros::<f32>(4)?;
        theirs.memcpy_dtod(&slice, &mut to)?;
        Ok(())
    }),
];

fn all() -> impl Iterator<Item = (&'static str, Test)> {
    TESTS.into_iter().chain(borrows::TESTS).chain(host::TESTS)
}

/// The calling thread's stream of the crate.
fn own() -> Result<Arc<CudaStream>, Error> {
    match DeviceStream::new(0)? {
        DeviceStream::Cuda(stream) => Ok(stream),
        other => panic!("{other:?}"),
    }
}

/// Compiles the driver; `None` without a compiler.
fn driver(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cudarc/driver.c");
    let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];
    std::fs::create_dir_all(folder).unwrap();
    let library = folder.join("libcuda.so.1");
    let mut compiler = Command::new("cc");
    let done = compiler.args(flags).arg(source).arg("-o").arg(&library).status().ok()?;
    assert!(done.success(), "the driver does not compile");
    // As a driver's own plain name: the crate and cudarc open one library.
    let plain = folder.join("libcuda.so");
    let _ = std::fs::remove_file(&plain);
    std::os::unix::fs::symlink("libcuda.so.1", &plain).unwrap();
    Some(library)
}

/// Checks that each piece of work on some memory came after the one before it there, as the events say, or the host's
/// waits for all.
fn check(test: &str, said: &str) {
    let mut recorded: HashMap<&str, HashMap<&str, usize>> = HashMap::new();
    let mut reached: HashMap<&str, HashMap<&str, usize>> = HashMap::new();
    let mut last: HashMap<&str, (&str, usize)> = HashMap::new();
    let mut synchronized = 0;
    for (at, line) in said.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, stream, object] = words[..] else { panic!("{test}: {line} in\n{said}") };
        let own = reached.entry(stream).or_default();
        match what {
            "synchronize" => synchronized = at,
            "record" => drop(recorded.insert(object, own.clone())),
            "wait" => {
                for (other, seen) in recorded.get(object).into_iter().flatten() {
                    let known = own.entry(other).or_default();
                    *known = (*known).max(*seen);
                }
            }
            _ => {
                if let Some((before, when)) = last.insert(object, (stream, at)) {
                    let known = when < synchronized || own.get(before) >= Some(&when);
                    assert!(known, "{test}: line {at} of\n{said}");
                }
                own.insert(stream, at);
            }
        }
    }
    assert!(!last.is_empty(), "{test}: no work");
}

fn main() {
    if let Ok(wanted) = env::var(TEST) {
        let (_, test) = all().find(|(name, _)| *name == wanted).unwrap();
        let mine = own().unwrap();
        let other = mine.context().new_stream().unwrap();
        return test(&mine, &other).unwrap();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cudarc");
    if driver(&folder).is_none() {
        return println!("no C compiler: nothing tested");
    }
    for (name, _) in all() {
        let mut program = Command::new(env::current_exe().unwrap());
        let ran = program.env(TEST, name).env("LD_LIBRARY_PATH", &folder).output().unwrap();
        let (said, failed) = (String::from_utf8(ran.stdout), String::from_utf8(ran.stderr));
        assert!(ran.status.success(), "{name}: {}", failed.unwrap());
        let said = said.unwrap();
        check(name, &said);
        for (call, of, times) in [
            ("cluster", "cluster", 3),
            ("cooperative", "cooperative", 3),
            ("synchronize", "told", 1),
        ] {
            let wanted = if name.contains(of) { times } else { 0 };
            let found = said.lines().filter(|line| line.starts_with(call)).count();
            assert_eq!(found, wanted, "{name}: {call} in\n{said}");
        }
    }
    println!("{} tests of cudarc's streams passed", all().count());
}
