//! A kernel that cudarc's NVRTC compiles, as docs/rust.md shows it.

// [start:page]
use cai_bridge::Kernel;
use cudarc::nvrtc::compile_ptx;

const CODE: &str = r#"
extern "C" __global__ void twice(const float *x, float *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}"#;

static TWICE: Kernel = Kernel::compiled("twice", || Ok(compile_ptx(CODE)?.to_src().into()));
// [end:page]

fn main() {
    println!("{}", TWICE.name());
}
