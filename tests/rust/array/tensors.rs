use cai_bridge::dlpack::encode;
use cai_bridge::layout::Layout;
use cai_bridge::testing::SimulatedCuda;
use cai_bridge::{Array, Descriptor, Device, DeviceStream, Dtype, ErrorKind, LegacyTensor, Tensor};

use super::{add, assert_over, copied, two_streams};

#[test]
fn a_tensor_is_ready_on_its_consumers_stream_and_goes_back_in_its_order() {
    let (cuda, home, theirs) = two_streams();
    for round in 0..10_u8 {
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
fn a_legacy_tensor_is_ordered_freed_and_refused_as_its_structure_says() {
    let (cuda, home, theirs) = two_streams();
    for round in 0..10_u8 {
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

/// An array of 8 elements of a type that DLPack alone has: its code, bits and lanes.
fn of_dlpack(stream: &DeviceStream, (code, bits, lanes): (u8, u8, u16)) -> (Array, Array) {
    let memory: Array = Array::from_host(stream, &[0_u8; 16], &[16]).unwrap().into();
    let dtype = Dtype::of_dlpack(code, bits, lanes).unwrap();
    let layout = Layout::from_elements(&[8], None, dtype.element_size()).unwrap();
    let array = Descriptor::new(memory.ptr(), dtype, layout, Device::cuda(0), false).unwrap();
    let tensor = encode::versioned(&array, Box::new(memory.clone())).unwrap();
    // SAFETY: the tensor was made for that stream, and has the memory.
    (unsafe { Array::from_dlpack(tensor, stream) }.unwrap(), memory)
}

#[test]
fn parts_of_packed_elements_begin_at_whole_bytes_inside_the_array() {
    const INT4: (u8, u8, u16) = (0, 4, 1);
    let (cuda, stream, _) = two_streams();
    let (outside, inside_a_byte) = (Err(ErrorKind::Reshape), Err(ErrorKind::SubByte));
    for (dtype, offset, shape, strides, wanted) in [
        (INT4, 0, 8, 1, Ok(0)),
        (INT4, 2, 6, 1, Ok(1)),
        (INT4, 4, 2, 2, Ok(2)),
        (INT4, 6, 7, -1, Ok(3)),
        (INT4, 6, 2, 1, Ok(3)),
        (INT4, 8, 0, 1, Ok(0)),
        (INT4, 2, 7, 1, outside),
        (INT4, 8, 1, 1, outside),
        (INT4, 6, 8, -1, outside),
        (INT4, 0, 5, 2, outside),
        (INT4, -2, 1, 1, outside),
        (INT4, i64::MAX, 1, 1, outside),
        (INT4, 1, 1, 1, inside_a_byte),
        (INT4, 7, 8, -1, inside_a_byte),
        // Float6, twelve bits in two lanes, and one that fills bytes.
        ((15, 6, 1), 4, 4, 1, Ok(3)),
        ((15, 6, 1), 2, 4, 1, inside_a_byte),
        ((0, 4, 3), 2, 6, 1, Ok(3)),
        ((0, 4, 3), 3, 1, 1, inside_a_byte),
        ((0, 4, 3), 3, 6, 1, outside),
        ((0, 4, 2), 3, 5, 1, Ok(3)),
        ((0, 4, 2), 3, 6, 1, outside),
    ] {
        let (array, memory) = of_dlpack(&stream, dtype);
        let part = array.strided(offset, &[shape], &[strides]);
        let begins = part.map(|part| part.ptr().saturating_sub(memory.ptr()));
        let case = format!("{dtype:?}: {shape} by {strides} from {offset}");
        assert_eq!(begins.map_err(|error| error.kind()), wanted, "{case}");
    }
    assert_over(&cuda);
}
