//! Kernels: code for a GPU, with an optional Rust function that stands in for it on the simulated device.

use std::fmt;
#[cfg(feature = "cudarc")]
use std::sync::Mutex;
use std::sync::OnceLock;

use super::on_host::OnHost;
#[cfg(feature = "cudarc")]
use crate::error::caught;
use crate::error::{Error, Kind, Result};

/// A kernel to [launch](crate::Scope::launch): its code for a GPU, and the function that stands in for it on the
/// simulated device, if [`on_host`](Kernel::on_host) sets one.
///
/// # Examples
///
/// ```
/// use cai_bridge::Kernel;
///
/// # const PTX: &str = "";
/// static DOUBLE: Kernel = Kernel::new("double", PTX)
///     .on_host(|call| {
///         let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
///         call.store(0, &doubled)
///     });
/// assert_eq!(DOUBLE.name(), "double");
/// ```
pub struct Kernel {
    name: &'static str,
    code: KernelCode,
    on_host: Option<fn(&OnHost<'_>) -> Result<()>>,
    #[cfg(feature = "cudarc")]
    pub(super) loaded: Mutex<Vec<Loaded>>,
}

type Compile = fn() -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>;

enum KernelCode {
    Given(&'static [u8]),
    #[cfg_attr(
        not(feature = "cudarc"),
        expect(dead_code, reason = "without it nothing is launched there")
    )]
    Compiled(Compile, OnceLock<Vec<u8>>),
}

#[cfg(feature = "cudarc")]
#[derive(Clone, Copy)]
pub(super) struct Loaded {
    pub(super) context: usize,
    pub(super) life: u64,
    pub(super) function: usize,
    /// The limit of dynamic shared memory that the crate has set for the function, in bytes per block; 0 if it has set
    /// none.
    pub(super) shared: u32,
}

impl Kernel {
    /// The entry `name` of the PTX text `ptx`. The driver compiles the text at the first launch in each context of a
    /// GPU.
    ///
    /// # Examples
    ///
    /// See [`Kernel`].
    pub const fn new(name: &'static str, ptx: &'static str) -> Self {
        Self::of(name, KernelCode::Given(ptx.as_bytes()))
    }

    /// The entry `name` of a cubin or a fatbin, as `nvcc` and `ptxas` write them.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Kernel;
    ///
    /// # const CUBIN: &[u8] = b"";
    /// static DOUBLE: Kernel = Kernel::from_image("double", CUBIN); // include_bytes!("double.cubin")
    /// assert_eq!(DOUBLE.name(), "double");
    /// ```
    pub const fn from_image(name: &'static str, image: &'static [u8]) -> Self {
        Self::of(name, KernelCode::Given(image))
    }

    /// The entry `name` of PTX, a cubin or a fatbin that `compile` makes, for instance by NVRTC. `compile` runs at the
    /// first launch on a GPU and never on the simulated device, so a test on the simulated device needs no compiler. If
    /// `compile` fails or panics, the launch returns an [error](crate::ErrorKind::KernelCode), and the next launch
    /// calls `compile` again. cudarc panics if NVRTC's library is missing. First launches in two threads may both call
    /// `compile`.
    ///
    /// # Examples
    ///
    /// ```
    /// // Turn on cudarc's feature "nvrtc" in your crate, and add: use cudarc::nvrtc::compile_ptx;
    /// # struct Ptx;
    /// # impl Ptx { fn to_src(&self) -> String { String::new() } }
    /// # fn compile_ptx(_: &str) -> Result<Ptx, std::fmt::Error> { panic!("no NVRTC") }
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Grid, Kernel, scope};
    ///
    /// const CODE: &str = "extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }";
    ///
    /// static TWICE: Kernel = Kernel::compiled("twice", || Ok(compile_ptx(CODE)?.to_src().into()))
    ///     .on_host(|call| {
    ///         let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
    ///         call.store(0, &doubled)
    ///     });
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::from_host(&stream, &[1.0_f32, 2.0], &[2])?;
    /// scope(&stream, |s| {
    ///     let mut x = x.on_mut(s)?.view_mut::<f32>()?;
    ///     // SAFETY: the kernel doubles as many floats as it has threads.
    ///     unsafe { s.launch(&TWICE, Grid::new([1, 1, 1], [2, 1, 1]), (&mut x,)) }
    /// })?;
    /// assert_eq!(x.to_vec::<f32>(&stream)?, [2.0, 4.0]);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub const fn compiled(
        name: &'static str,
        compile: fn() -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::of(name, KernelCode::Compiled(compile, OnceLock::new()))
    }

    const fn of(name: &'static str, code: KernelCode) -> Self {
        Self {
            name,
            code,
            on_host: None,
            #[cfg(feature = "cudarc")]
            loaded: Mutex::new(Vec::new()),
        }
    }

    /// Sets the Rust function that stands in for the kernel on the simulated device.
    ///
    /// # Examples
    ///
    /// See [`Kernel`].
    #[must_use]
    pub const fn on_host(mut self, work: fn(&OnHost<'_>) -> Result<()>) -> Self {
        self.on_host = Some(work);
        self
    }

    /// The kernel's name: the entry in its code.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(cai_bridge::Kernel::new("double", "").name(), "double");
    /// ```
    pub const fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(feature = "cudarc")]
    pub(super) fn has_code(&self) -> bool {
        !matches!(&self.code, KernelCode::Compiled(_, made) if made.get().is_none())
    }

    #[cfg(feature = "cudarc")]
    pub(super) fn code(&self) -> Result<&[u8]> {
        let (compile, made) = match &self.code {
            KernelCode::Given(code) => return Ok(code),
            KernelCode::Compiled(compile, made) => (compile, made),
        };
        if let Some(code) = made.get() {
            return Ok(code);
        }
        // Do not call `compile` inside `get_or_init`: `compile` may launch this kernel, and a nested `get_or_init`
        // deadlocks.
        let got = match caught(compile) {
            Ok(Ok(code)) => return Ok(made.get_or_init(|| code)),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("a panic: {panic}"),
        };
        Err(Error::kernel_code(self.name, got))
    }

    pub(super) fn stand_in(&self) -> Result<fn(&OnHost<'_>) -> Result<()>> {
        let none = || {
            Error::new(
                Kind::NoBackend,
                format!("the kernel {}, which has no on_host function", self.name),
            )
        };
        self.on_host.ok_or_else(none)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match &self.code {
            KernelCode::Given(code) => Some(*code),
            KernelCode::Compiled(_, code) => code.get().map(Vec::as_slice),
        };
        match code {
            Some(code) => write!(f, "Kernel({}, {} bytes of code)", self.name, code.len()),
            None => write!(f, "Kernel({}, not compiled yet)", self.name),
        }
    }
}

/// The shape of a launch: its blocks, the threads and shared memory of a block, its clusters, and whether the launch is
/// cooperative.
///
/// # Examples
///
/// ```
/// use cai_bridge::Grid;
///
/// assert_eq!(Grid::cover(1000, 256).blocks, [4, 1, 1]);
/// let tiles = Grid::new([8, 8, 1], [16, 16, 1]).with_shared(1024);
/// assert_eq!((tiles.threads, tiles.shared), ([16, 16, 1], 1024));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// The number of blocks along x, y and z.
    pub blocks: [u32; 3],
    /// The number of threads in a block, along x, y and z.
    pub threads: [u32; 3],
    /// The size in bytes of each block's dynamic shared memory.
    pub shared: u32,
    /// The number of blocks in a cluster, along x, y and z; `None` for no clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks run at the same time and may wait for each other.
    pub cooperative: bool,
}

impl Grid {
    /// A grid of `blocks` blocks with `threads` threads each, along x, y and z.
    ///
    /// # Examples
    ///
    /// See [`Grid`].
    pub const fn new(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self { blocks, threads, shared: 0, cluster: None, cooperative: false }
    }

    /// Sets the dynamic shared memory of each block, in bytes. It may exceed CUDA's default limit of 48 KiB, up to the
    /// GPU's own limit.
    ///
    /// # Examples
    ///
    /// See [`Grid`].
    #[must_use]
    pub const fn with_shared(self, bytes: u32) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Groups the grid's blocks in clusters of `blocks` blocks along x, y and z. Each number must divide the grid's
    /// number of blocks on its axis. A launch with clusters needs a driver of CUDA 11.8 or later and a GPU of compute
    /// capability 9.0 or later.
    ///
    /// # Examples
    ///
    /// ```
    /// let pairs = cai_bridge::Grid::cover(1000, 125).with_cluster([2, 1, 1]);
    /// assert_eq!((pairs.blocks, pairs.cluster), ([8, 1, 1], Some([2, 1, 1])));
    /// ```
    #[must_use]
    pub const fn with_cluster(self, blocks: [u32; 3]) -> Self {
        Self { cluster: Some(blocks), ..self }
    }

    /// Makes the launch cooperative: all blocks run at the same time and may wait for each other (`grid.sync()`). The
    /// launch needs a driver of CUDA 11.8 or later, and fails if the GPU has no room for all blocks at once.
    ///
    /// # Examples
    ///
    /// ```
    /// assert!(cai_bridge::Grid::cover(1000, 250).cooperative().cooperative);
    /// ```
    #[must_use]
    pub const fn cooperative(self) -> Self {
        Self { cooperative: true, ..self }
    }

    /// The smallest grid along x with at least `n` threads, in blocks of `threads` threads. It has at least one block,
    /// and at most `u32::MAX` blocks, even if `n` needs more. If `threads` is 0, a block has one thread.
    ///
    /// # Examples
    ///
    /// ```
    /// assert_eq!(cai_bridge::Grid::cover(0, 128).blocks, [1, 1, 1]);
    /// ```
    pub fn cover(n: usize, threads: u32) -> Self {
        let threads = threads.max(1);
        let blocks = n.div_ceil(usize::try_from(threads).unwrap_or(1)).max(1);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }
}
