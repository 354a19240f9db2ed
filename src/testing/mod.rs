//! A CUDA device that needs no GPU, for the tests of code that uses this crate.

use std::sync::Arc;

use crate::array::{DeviceStream, SimulatedStream};
use crate::driver::Handle;
use crate::driver::simulated::Simulated;
use crate::error::{Error, Kind, Result};

/// A simulated machine with GPUs: memory, streams, and work that runs late.
///
/// Queued work runs as late as is legal, so that a missing wait shows in the values; and every access is checked
/// against every other one, so that [`check`](SimulatedCuda::check) names each pair that nothing orders, and each
/// use of freed memory.
///
/// Arrays and streams are of the machine that they were made on; several machines do not meet.
///
/// # Examples
///
/// ```
/// use cai_bridge::Array;
/// use cai_bridge::testing::SimulatedCuda;
///
/// let cuda = SimulatedCuda::new(1);
/// let (mine, theirs) = (cuda.stream(0)?, cuda.stream(0)?);
/// let x = Array::from_host(&mine, &[1.0_f32; 4], &[4])?;
/// assert_eq!(x.to_vec::<f32>(&theirs)?, [1.0; 4]);
/// cuda.check()?;
/// # Ok::<(), cai_bridge::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedCuda(Arc<Simulated>);

impl SimulatedCuda {
    /// A machine with that many GPUs.
    ///
    /// # Examples
    ///
    /// See [`SimulatedCuda`].
    #[must_use]
    pub fn new(devices: u32) -> Self {
        Self(Simulated::new(devices))
    }

    /// A new non-blocking stream of the GPU `ordinal`.
    ///
    /// # Errors
    ///
    /// There is no such GPU.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// assert!(SimulatedCuda::new(1).stream(0).is_ok());
    /// assert!(SimulatedCuda::new(1).stream(1).is_err());
    /// ```
    pub fn stream(&self, ordinal: i32) -> Result<DeviceStream> {
        SimulatedStream::new(&self.handle(), ordinal).map(DeviceStream::Simulated)
    }

    /// Runs what is queued, and answers the first thing that the program got wrong, if any.
    ///
    /// # Errors
    ///
    /// [`Misuse`](Kind::Misuse): what it was, by both sides.
    ///
    /// # Examples
    ///
    /// See [`SimulatedCuda`].
    pub fn check(&self) -> Result<()> {
        self.0.run_all()?;
        match self.0.take_reports().first() {
            None => Ok(()),
            Some(report) => Err(Error::new(Kind::Misuse, report.message.clone())),
        }
    }

    /// How many bytes of memory are in use: allocated and not freed.
    ///
    /// # Examples
    ///
    /// ```
    /// use cai_bridge::Array;
    /// use cai_bridge::testing::SimulatedCuda;
    ///
    /// let cuda = SimulatedCuda::new(1);
    /// let x = Array::empty::<f64>(&cuda.stream(0)?, &[4])?;
    /// assert_eq!(cuda.bytes_in_use(), 32);
    /// drop(x);
    /// assert_eq!(cuda.bytes_in_use(), 0);
    /// # Ok::<(), cai_bridge::Error>(())
    /// ```
    pub fn bytes_in_use(&self) -> u64 {
        self.0.bytes_in_use()
    }

    /// The machine itself, to make its calls fail.
    #[doc(hidden)]
    pub fn machine(&self) -> &Simulated {
        &self.0
    }

    fn handle(&self) -> Handle {
        Handle::Simulated(Arc::clone(&self.0))
    }
}
