//! A library that lacks a symbol does not link: the loader would say so in every program that it is preloaded into.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    println!("cargo::rerun-if-changed=build.rs");
}
