//! Makes a missing symbol a link error. Otherwise the loader would report it in every program that preloads
//! the library.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    println!("cargo::rerun-if-changed=build.rs");
}
