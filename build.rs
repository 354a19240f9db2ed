//! Tells the Python layer whether the interpreter has a global lock.

fn main() {
    #[cfg(feature = "python")]
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo::rustc-check-cfg=cfg(Py_GIL_DISABLED)");
}
