use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, ErrorKind, LegacyTensor, Tensor};

use super::{add, assert_over, copied, two_streams};

#[test]
fn a_tensor_is_ready_on_its_consumers_stream_and_goes_back_in_its_order() {
    let (cuda, home, theirs) = two_streams();
    for round in 0..100_u8 {
        let x = Array::from_host(&home, &[f32::from(round); 4], &[4]).unwrap();
        let tensor: Tensor = x.to_dlpack(&theirs).unwrap();
        drop(x);
        // SAFETY: the tensor was made for that stream, and nobody else has the memory.
        let y = unsafe { Array::from_dlpack(tensor, &theirs) }.unwrap();
        let z = copied(&theirs, &y).unwrap();
        drop(y); // the tensor is deleted, its work still queued
        assert_eq!(z.to_vec::<f32>(&theirs).unwrap(), [f32::from(round); 4]);
    }
    assert_over(&cuda);
}

#[test]
fn a_tensor_through_cs_hands_is_the_same_array() {
    let cuda = SimulatedCuda::new(1);
    let stream = cuda.stream(0).unwrap();
    let x = Array::from_host(&stream, &[1_u8, 2, 3, 4, 5, 6], &[6]).unwrap();
    let every_other = x.strided(0, &[3], &[2]).unwrap().into_readonly();
    let raw = every_other.to_dlpack(&stream).unwrap().into_raw();
    drop(every_other);
    // SAFETY: the pointer is a tensor's, by the line above.
    let tensor = unsafe { Tensor::from_raw(raw) }.unwrap();
    // SAFETY: the tensor was made for that stream.
    let y = unsafe { Array::from_dlpack(tensor, &stream) }.unwrap();
    assert_eq!(y.to_vec::<u8>(&stream).unwrap(), [1, 3, 5]);
    assert_eq!(y.writable().unwrap_err().kind(), ErrorKind::NotWritable);
    assert_eq!(cuda.bytes_in_use(), 0);
}

#[test]
fn what_a_consumer_writes_is_seen_by_the_producer() {
    let (cuda, home, theirs) = two_streams();
    let x = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap();
    // SAFETY: the tensor was made for that stream, and the producer works again when it is deleted.
    let y = unsafe { Array::from_dlpack(x.to_dlpack(&theirs).unwrap(), &theirs) };
    let mut y = y.unwrap().writable().unwrap();
    add(&theirs, &mut y).unwrap();
    drop(y);
    assert_eq!(x.to_vec::<f32>(&home).unwrap(), [2.0; 4]);
    cuda.check().unwrap();
}

#[test]
fn a_tensor_is_deleted_from_any_thread() {
    let cuda = SimulatedCuda::new(1);
    let home = cuda.stream(0).unwrap();
    let tensor = Array::from_host(&home, &[1.0_f32; 4], &[4]).unwrap().to_dlpack(&home).unwrap();
    std::thread::spawn(move || drop(tensor)).join().unwrap();
    assert_over(&cuda);
}

#[test]
fn a_legacy_tensor_is_ordered_freed_and_refused_as_its_structure_says() {
    let (cuda, home, theirs) = two_streams();
    for round in 0..100_u8 {
        let x: Array = Array::from_host(&home, &[f32::from(round); 4], &[2, 2]).unwrap().into();
        let columns = x.strided(0, &[2, 2], &[1, 2]).unwrap();
        let raw = columns.to_dlpack_legacy(&theirs).unwrap().into_raw();
        drop((x, columns));
        // SAFETY: the pointer is a tensor's, by the line above.
        let tensor = unsafe { LegacyTensor::from_raw(raw) }.unwrap();
        // SAFETY: the tensor was made for that stream, and nobody else has the memory.
        let mut y =
            unsafe { Array::from_dlpack_legacy(tensor, &theirs) }.unwrap().writable().unwrap();
        assert_eq!((y.shape(), y.strides()), (&[2, 2][..], &[1, 2][..]));
        add(&theirs, &mut y).unwrap();
        let z = copied(&theirs, &y).unwrap();
        drop(y);
        assert_eq!(z.to_vec::<f32>(&theirs).unwrap(), [f32::from(round) + 1.0; 4]);
    }
    assert_over(&cuda);
}
