//! Finds the line of the user's program that called the bridge.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::answered;
use crate::py::library;

/// The search skips frames whose file path contains one of these texts, but never the innermost frame.
const BETWEEN: [&str; 2] = ["/contextlib.py", "/asyncio/"];

#[derive(Debug)]
pub(crate) struct ProgramLine {
    pub(crate) file: String,
    pub(crate) number: u32,
    /// The `stacklevel` with which `warnings.warn` names this line; 1 is the innermost frame.
    pub(crate) level: i32,
}

/// The line from which the program called the bridge on this thread. If the search skips every frame, the innermost
/// frame's line. `None` if the search fails.
pub(crate) fn program_line(py: Python<'_>) -> PyResult<Option<ProgramLine>> {
    let line = answered(py, outside(py))?;
    Ok(line.flatten())
}

fn outside(py: Python<'_>) -> PyResult<Option<ProgramLine>> {
    let own = folder(py)?;
    let mut frame = py.import(intern!(py, "sys"))?.call_method0(intern!(py, "_getframe"))?;
    let (mut level, mut innermost) = (1, None);
    while !frame.is_none() {
        let file = frame.getattr(intern!(py, "f_code"))?.getattr(intern!(py, "co_filename"))?;
        let file: String = file.extract()?;
        let is_own = own.is_some_and(|own| file.starts_with(own));
        let mut between = BETWEEN.into_iter().chain(libraries());
        let passes = is_own || (level > 1 && between.any(|part| file.contains(part)));
        if !passes || innermost.is_none() {
            let number = frame.getattr(intern!(py, "f_lineno"))?.extract().unwrap_or(0);
            let line = ProgramLine { file, number, level };
            if !passes {
                return Ok(Some(line));
            }
            innermost = Some(line);
        }
        frame = frame.getattr(intern!(py, "f_back"))?;
        level += 1;
    }
    Ok(innermost)
}

fn libraries() -> impl Iterator<Item = &'static str> {
    library::all().iter().filter_map(|library| library.frames())
}

/// The folder of the package `cai_bridge`, with a trailing separator; `None` if the package is not imported.
fn folder(py: Python<'_>) -> PyResult<Option<&str>> {
    static FOLDER: PyOnceLock<String> = PyOnceLock::new();
    if let Some(folder) = FOLDER.get(py) {
        return Ok(Some(folder));
    }
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let package = modules.call_method1(intern!(py, "get"), (intern!(py, "cai_bridge"),))?;
    if package.is_none() {
        return Ok(None);
    }
    let file: String = package.getattr(intern!(py, "__file__"))?.extract()?;
    let folder = file.rfind(['/', '\\']).and_then(|end| file.get(..=end));
    Ok(folder.map(|folder| FOLDER.get_or_init(py, || folder.to_owned()).as_str()))
}
