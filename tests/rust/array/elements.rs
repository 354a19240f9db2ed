//! Elements of each type of Rust's, through a kernel and back.

use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Argument, Array, Bool, Element, Error, Grid, Kernel, Scalar, scope};

/// The values come back as they were, under the name that the type has.
fn check<T: Element + PartialEq + std::fmt::Debug>(name: &str, values: &[T; 2]) {
    let stream = SimulatedCuda::new(1).stream(0).unwrap();
    let x = Array::from_host(&stream, values, &[2]).unwrap();
    assert_eq!(x.dtype().name(), name);
    assert_eq!(x.to_vec::<T>(&stream).unwrap(), values);
}

#[test]
fn every_type_is_the_element_type_that_it_names() {
    check("bool", &[Bool::from(true), Bool::from(false)]);
    check("int8", &[-1_i8, 2]);
    check("uint16", &[1_u16, 65535]);
    #[cfg(feature = "half")]
    check("float16", &[half::f16::from_f32(1.5), half::f16::from_f32(-2.0)]);
    #[cfg(feature = "half")]
    check("bfloat16", &[half::bf16::from_f32(1.5), half::bf16::from_f32(-2.0)]);
    #[cfg(feature = "num-complex")]
    check(
        "complex64",
        &[num_complex::Complex::new(1.0_f32, 2.0), num_complex::Complex::new(0.0, -1.0)],
    );
    #[cfg(feature = "num-complex")]
    check(
        "complex128",
        &[num_complex::Complex::new(1.0_f64, 2.0), num_complex::Complex::new(0.0, -1.0)],
    );
    #[cfg(feature = "float8")]
    check("float8_e4m3fn", &[float8::F8E4M3::from_f32(1.5), float8::F8E4M3::from_f32(-2.0)]);
    #[cfg(feature = "float8")]
    check("float8_e5m2", &[float8::F8E5M2::from_f32(1.5), float8::F8E5M2::from_f32(-2.0)]);
}

#[test]
fn a_boolean_is_any_byte() {
    let stream = SimulatedCuda::new(1).stream(0).unwrap();
    let x: Array = Array::from_host(&stream, &[Bool::from(true)], &[1]).unwrap().into();
    assert_eq!(x.to_vec::<u8>(&stream).unwrap_err().kind(), cai_bridge::ErrorKind::ElementType);
    assert!(x.to_vec::<Bool>(&stream).unwrap()[0].get());
}

/// Fills an array with the number that it is given.
fn fill<T>(kernel: &'static Kernel, value: T)
where
    T: Scalar + PartialEq + std::fmt::Debug + Default + for<'id> Argument<'id>,
{
    let stream = SimulatedCuda::new(1).stream(0).unwrap();
    let mut x = Array::from_host(&stream, &[T::default(); 2], &[2]).unwrap();
    scope(&stream, |s| {
        let mut x = x.on_mut(s)?.view_mut::<T>()?;
        // SAFETY: the stand-in alone runs.
        unsafe { s.launch(kernel, Grid::cover(2, 2), (&mut x, value)) }?;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(x.to_vec::<T>(&stream).unwrap(), [value; 2]);
}

static OF_I8: Kernel =
    Kernel::new("fill", "").on_host(|call| call.store(0, &[call.scalar::<i8>(1)?; 2]));

#[cfg(feature = "half")]
static OF_BF16: Kernel =
    Kernel::new("fill", "").on_host(|call| call.store(0, &[call.scalar::<half::bf16>(1)?; 2]));

#[test]
fn a_kernel_takes_numbers_of_each_size() {
    fill(&OF_I8, -7_i8);
    #[cfg(feature = "half")]
    fill(&OF_BF16, half::bf16::from_f32(1.5));
}
