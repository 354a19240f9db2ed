//! Launching a kernel in a scope.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::argument::{Arguments, Slot, Used};
#[cfg(feature = "cudarc")]
use super::cuda;
use super::kernel::{Grid, Kernel};
use super::on_host::OnHost;
use super::scope::Scope;
use super::simulated::SimulatedStream;
use super::stream::{Backend, WorkStream};
use crate::driver::simulated::{Machine, Span};
use crate::error::{Error, Kind, Result, said};

impl<'id, S: WorkStream> Scope<'id, S> {
    /// Queues `kernel` on the scope's stream. The simulated device queues the kernel's [`on_host`](Kernel::on_host)
    /// function instead, and reports races: it counts a `&View` as read and a `&mut ViewMut` as written. It also
    /// reports an `on_host` function that fails or panics.
    ///
    /// # Safety
    ///
    /// The kernel's code is whole: a cubin or fatbin states its own length, and the driver reads that far. The kernel
    /// takes arguments of these types, with a view as the address of its first element. The kernel touches only the
    /// memory of the views among its arguments, and writes only to each [`ViewMut`](crate::ViewMut). Views of two
    /// arrays may overlap: Python can pass an array twice, and an [`Array`](crate::Array) has clones.
    ///
    /// The crate orders the work of all scopes on one array, its clones and its parts. It does not know that two
    /// separately imported arrays overlap. If one scope works on one of these arrays and another scope on the other
    /// array, end the first scope before the second begins, unless both scopes only read. If the arrays' producers have
    /// different streams, also make the second array's producer wait for the first array's, between the two scopes.
    ///
    /// # Errors
    ///
    /// The kernel's code cannot be made, or the driver refused the code, the launch or a wait for other work.
    /// [`Borrowed`](Kind::Borrowed): memory that a scope has lent to cudarc overlaps a view, counted from the view's
    /// first to its last byte, and the kernel or the borrower may write. [`NoBackend`](Kind::NoBackend): the kernel has
    /// no `on_host` function for the simulated device, or the stream belongs to another runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    /// use cai_bridge::{Array, Error, Grid, Kernel, scope};
    ///
    /// # const PTX: &str = "";
    /// static DOUBLE: Kernel = Kernel::new("double", PTX)
    ///     .on_host(|call| {
    ///         let doubled: Vec<f32> = call.values::<f32>(0)?.into_iter().map(|x| 2.0 * x).collect();
    ///         call.store(0, &doubled)
    ///     });
    ///
    /// let stream = SimulatedCuda::new(1).stream(0)?;
    /// let mut x = Array::from_host(&stream, &[1.0_f32, 2.0, 3.0], &[3])?;
    /// scope(&stream, |s| {
    ///     let mut x = x.on_mut(s)?.view_mut::<f32>()?;
    ///     let n = x.len() as u32;
    ///     // SAFETY: the kernel takes the address of floats and their number, and writes to them alone.
    ///     unsafe { s.launch(&DOUBLE, Grid::cover(x.len(), 256), (&mut x, n)) }
    /// })?;
    /// assert_eq!(x.to_vec::<f32>(&stream)?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub unsafe fn launch(
        &self,
        kernel: &'static Kernel,
        grid: Grid,
        arguments: impl Arguments<'id>,
    ) -> Result<()> {
        let uses: Vec<_> = arguments.uses().into_iter().map(|Used(used)| used).collect();
        let slots = arguments.slots();
        #[cfg(feature = "cudarc")]
        if let Backend::Cuda(stream) = self.stream().backend() {
            cuda::compile(stream, kernel)?;
        }
        self.in_turn(&uses, || match self.stream().backend() {
            #[cfg(feature = "cudarc")]
            // SAFETY: the caller promises what `cuda::launch` requires.
            Backend::Cuda(stream) => unsafe { cuda::launch(stream, kernel, grid, &slots) },
            Backend::Simulated(stream) => queue(stream, kernel, slots),
            Backend::Other => {
                let _ = grid;
                Err(Error::new(Kind::NoBackend, "a stream of another runtime"))
            }
        })
    }
}

fn queue(stream: &SimulatedStream, kernel: &'static Kernel, slots: Vec<Slot>) -> Result<()> {
    let work = kernel.stand_in()?;
    let mut spans = (Vec::new(), Vec::new());
    for slot in &slots {
        let Slot::Memory(array, written) = slot else { continue };
        let (ptr, len) = array.span();
        let span = Span { ptr, len };
        if *written { spans.1.push(span) } else { spans.0.push(span) }
    }
    let name = kernel.name();
    let task = move |machine: &dyn Machine| {
        let run = || work(&OnHost { machine, slots: &slots });
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => machine.failed(name, &error.to_string()),
            Err(panic) => {
                machine.failed(name, &format!("a panic: {}", said(&*panic)));
                resume_unwind(panic);
            }
        }
    };
    let (reads, writes) = &spans;
    stream.machine()?.queue(stream.handle(), name, reads, writes, Arc::new(task))
}
