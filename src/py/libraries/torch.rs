//! PyTorch: each thread has a current stream on each GPU. PyTorch never destroys the streams of its pools, but does not
//! keep an `ExternalStream` alive. PyTorch ignores the stream that a CAI dict names.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::device::Device;
use crate::dlpack::exchange::ExchangeTable;
use crate::py::habits::{Habit, HabitRow, known};
use crate::py::imported::imported;
use crate::py::interpreter::answered;
use crate::py::library::{Current, Library, StreamPool};
use crate::py::streams::pools::round;

#[derive(Debug)]
pub(super) struct Torch;

const HABITS: &[HabitRow] = &[
    known("torch", Habit::KeepsToDlpack, "2.11.0", "gpu/test_races.py"),
    known("torch", Habit::SilentDict, "2.11.0", "gpu/test_habits.py"),
    known("torch", Habit::WrapsTensors, "2.15", "python/test_strangers.py"),
    known("torch", Habit::ReadyOnCurrent, "2.9", "gpu/test_old_torch.py"),
];

impl Library for Torch {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn habits(&self) -> &'static [HabitRow] {
        HABITS
    }

    fn current(&self) -> Option<&dyn Current> {
        Some(self)
    }

    fn ready_on(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
        self.native(py, ordinal)
    }

    fn pool(&self) -> Option<&dyn StreamPool> {
        Some(self)
    }

    fn handle_attribute(&self) -> Option<&'static str> {
        Some("cuda_stream")
    }

    fn unwrapping<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let torch = py.import(intern!(py, "torch._C"));
        answered(py, torch.and_then(|torch| torch.call_method0("DisableTorchFunctionSubclass")))
    }

    fn frames(&self) -> Option<&'static str> {
        Some("/torch/autograd/")
    }
}

enum TorchStreamRoute {
    Table(ExchangeTable),
    /// `torch._C._cuda_getCurrentRawStream(device)`: PyTorch before 2.10 has no exchange API.
    Python(Py<PyAny>),
}

impl TorchStreamRoute {
    fn of(torch: &Bound<'_, PyAny>, tensor: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = torch.py();
        if let Some(table) = answered(py, ExchangeTable::of(tensor))?.flatten() {
            return Ok(Some(Self::Table(table)));
        }
        let function = torch
            .getattr(intern!(py, "_C"))
            .and_then(|native| native.getattr(intern!(py, "_cuda_getCurrentRawStream")));
        Ok(answered(py, function)?.map(|function| Self::Python(function.unbind())))
    }
}

impl Current for Torch {
    fn native(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<u64>> {
        static ROUTE: PyOnceLock<Option<TorchStreamRoute>> = PyOnceLock::new();
        let asked = if let Some(asked) = ROUTE.get(py) {
            asked
        } else {
            let Some(module) = imported(py, intern!(py, "torch"))? else { return Ok(None) };
            let tensor = answered(py, module.getattr(intern!(py, "Tensor")))?;
            let Some(tensor) = tensor.and_then(|tensor| tensor.cast_into::<PyType>().ok()) else {
                return Ok(None);
            };
            let asked = TorchStreamRoute::of(&module, &tensor)?;
            ROUTE.get_or_init(py, || asked)
        };
        match asked {
            None => Ok(None),
            Some(TorchStreamRoute::Table(table)) => {
                answered(py, table.current_work_stream(py, Device::cuda(ordinal)))
            }
            Some(TorchStreamRoute::Python(function)) => {
                let native = function.bind(py).call1((ordinal,));
                answered(py, native.and_then(|native| native.extract::<u64>()))
            }
        }
    }

    // PyTorch 2.11 ignores the streams that dicts name (`tests/gpu/test_races.py`).
    fn ignores_dicts(&self) -> bool {
        true
    }
}

/// PyTorch hands out 32 streams for each priority and device in turn (PyTorch 2.11, one H200, 2026-11).
impl StreamPool for Torch {
    fn list(&self, py: Python<'_>, ordinal: i32) -> PyResult<Option<Vec<u64>>> {
        let Some(torch) = imported(py, intern!(py, "torch"))? else { return Ok(None) };
        let cuda = torch.getattr("cuda")?;
        if !cuda.call_method0("is_initialized")?.is_truthy()? {
            return Ok(None);
        }
        let kind = cuda.getattr("Stream")?;
        let (least, greatest): (i64, i64) = kind.call_method0("priority_range")?.extract()?;
        let mut all = Vec::new();
        for priority in greatest..=least {
            all.extend(round(|| {
                kind.call1((ordinal, priority))?.getattr("cuda_stream")?.extract()
            })?);
        }
        Ok(Some(all))
    }
}
