//! What a kernel's `on_host` function gets when the simulated device runs the function in place of the kernel.

use std::fmt;

use super::argument::{Scalar, Slot};
use super::element::{Element, addresses, bytes, values};
use crate::descriptor::Descriptor;
use crate::driver::simulated::Machine;
use crate::error::{Error, Kind, Result};

/// A launch on the simulated device, as the kernel's [`on_host`](crate::Kernel::on_host) function sees it.
///
/// # Examples
///
/// See [`Kernel`](crate::Kernel).
pub struct OnHost<'a> {
    pub(super) machine: &'a dyn Machine,
    pub(super) slots: &'a [Slot],
}

impl OnHost<'_> {
    /// The argument at the index `at`, which was passed as a [`Scalar`](crate::Scalar). The first argument has the
    /// index 0.
    ///
    /// # Errors
    ///
    /// The argument is missing or not a `T`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(call: &cai_bridge::OnHost<'_>) -> cai_bridge::Result<()> {
    /// let a = call.scalar::<f32>(0)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn scalar<T: Scalar>(&self, at: usize) -> Result<T> {
        let number = match self.slots.get(at) {
            Some(Slot::Number(number, name)) if *name == T::NAME => {
                values::<T>(number).first().copied()
            }
            _ => None,
        };
        number.ok_or_else(|| self.wrong(at, "a number", T::NAME))
    }

    /// The argument at the index `at`, counted from 0, which was passed by [`ByValue`](crate::ByValue).
    ///
    /// # Errors
    ///
    /// The argument is missing or not a `T`.
    ///
    /// # Examples
    ///
    /// See [`ByValue`](crate::ByValue).
    pub fn value<T: Copy + 'static>(&self, at: usize) -> Result<T> {
        let value = match self.slots.get(at) {
            Some(Slot::Value(value, _)) => value.downcast_ref::<T>().copied(),
            _ => None,
        };
        value.ok_or_else(|| self.wrong(at, "a value", std::any::type_name::<T>()))
    }

    /// Reads the elements, in C order, of the array argument at the index `at`, counted from 0.
    ///
    /// # Errors
    ///
    /// The argument is missing or not an array of `T`, or the simulated device cannot read it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(call: &cai_bridge::OnHost<'_>) -> cai_bridge::Result<()> {
    /// let sum: f64 = call.values::<f64>(1)?.iter().sum();
    /// # Ok(())
    /// # }
    /// ```
    pub fn values<T: Element>(&self, at: usize) -> Result<Vec<T>> {
        let (array, _) = self.memory::<T>(at)?;
        let mut element = vec![0; size_of::<T>()];
        let mut found = Vec::new();
        for ptr in addresses(array) {
            self.machine.load(ptr, &mut element)?;
            found.extend(values::<T>(&element));
        }
        Ok(found)
    }

    /// Writes `values`, in C order, to the elements of the array argument at the index `at`, counted from 0.
    ///
    /// # Errors
    ///
    /// The argument is missing or not an array of `T`, has another number of elements than `values`, or is a
    /// [`View`](crate::View), which the kernel may only read. Or the simulated device cannot write it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(call: &cai_bridge::OnHost<'_>) -> cai_bridge::Result<()> {
    /// call.store(2, &[1.0_f32, 2.0])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn store<T: Element>(&self, at: usize, values: &[T]) -> Result<()> {
        let (array, written) = self.memory::<T>(at)?;
        if !written {
            // The launch declared this array as only read, so the simulated device has not checked a write.
            return Err(refused(at, "a View, which is only read, to store in".to_owned()));
        }
        if usize::try_from(array.layout().size()) != Ok(values.len()) {
            let got = format!("{} values to store in {:?}", values.len(), array.layout().shape());
            return Err(refused(at, got));
        }
        for (ptr, value) in addresses(array).into_iter().zip(values) {
            self.machine.store(ptr, bytes(std::slice::from_ref(value)))?;
        }
        Ok(())
    }

    /// The flag says whether the kernel may write to the array.
    fn memory<T: Element>(&self, at: usize) -> Result<(&Descriptor, bool)> {
        match self.slots.get(at) {
            Some(Slot::Memory(array, written)) if array.dtype().name() == T::NAME => {
                Ok((array, *written))
            }
            _ => Err(self.wrong(at, "an array", T::NAME)),
        }
    }

    #[cold]
    fn wrong(&self, at: usize, wanted: &str, of: &str) -> Error {
        let there = match self.slots.get(at) {
            Some(Slot::Number(_, name)) => format!("a number of type {name}"),
            Some(Slot::Value(_, name)) => format!("a value of type {name}"),
            Some(Slot::Memory(array, _)) => format!("an array of type {}", array.dtype().name()),
            None => format!("none, in a launch with {} arguments", self.slots.len()),
        };
        refused(at, format!("{there}, taken as {wanted} of type {of}"))
    }
}

#[cold]
fn refused(at: usize, got: String) -> Error {
    Error::at(Kind::StandIn, format!("argument {at}"), got)
}

impl fmt::Debug for OnHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnHost({} arguments)", self.slots.len())
    }
}
