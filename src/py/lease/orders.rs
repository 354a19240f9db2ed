//! The orders of an end that others may make at the same time.

use pyo3::prelude::*;

use super::consumer::Consumer;
use super::holding::{Holding, Owner};
use super::tensor::Tensor;
use crate::lease::{Failure, Settlement};
use crate::order::Mark;
use crate::stream::Alive;

/// What the orders of a holder's end need of it, while the holder stays where others find it. The memory is not
/// held by this.
#[derive(Debug)]
pub(crate) struct Orders(Box<Holding>);

impl Orders {
    /// What they need where there is one to be made: for the consumer, or for the user of `also`.
    pub(crate) fn of(holding: &Holding, py: Python<'_>, also: bool) -> Option<Self> {
        match &holding.held {
            Owner::Array(object, _) if also || holding.nothing_to_order().is_none() => {
                // Without a tensor the garbage collector may take the object apart.
                let by_object = holding.is_by_object();
                let tensor = if by_object { Tensor::None } else { Tensor::Elsewhere };
                let held = Owner::Array(object.clone_ref(py), tensor);
                let mut twin = holding.with_same_streams(py, held, holding.consumer.clone_ref(py));
                twin.lent = holding.lent;
                Some(Self(twin))
            }
            _ => None,
        }
    }

    /// The same for the garbage collector, which found the view, of memory that nothing but a Python object keeps.
    pub(crate) fn for_collector(holding: &Holding, py: Python<'_>) -> Option<Self> {
        let mut orders = Self::of(holding, py, false)?;
        orders.0.collected();
        Some(orders)
    }

    /// Makes them, as [`Holding::settle_with`] does.
    pub(crate) fn make(
        &mut self,
        py: Python<'_>,
        also: Option<Alive<'_>>,
    ) -> Result<Settlement<Vec<Mark>>, Failure<PyErr>> {
        self.0.settle_with(py, also)
    }

    /// Tells the holder of the streams that were found where the orders failed: those are waited for at its end, too.
    pub(crate) fn tell(&self, py: Python<'_>, holding: &mut Holding) {
        if let Consumer::Unnamed(seen) = &self.0.consumer {
            for kept in seen {
                holding.note(py, kept.clone_ref(py));
            }
        }
    }
}
