//! What crosses between the protocols: lanes, what is pending, the pointer of nothing.

use cai_bridge::ErrorKind;
use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dlpack::{Fields, decode, encode};
use cai_bridge::dtype::Dtype;
use cai_bridge::layout::{Layout, Reach};
use cai_bridge::stream::{Ready, Stream};

use crate::tables::{int, ints, rows, table, text};

fn floats(shape: &[i64], lanes: u16) -> Descriptor {
    let dtype = Dtype::from_dlpack(2, 32, lanes).unwrap();
    let layout = Layout::from_elements(shape, None, dtype.element_size()).unwrap();
    Descriptor::new(4096, dtype, layout, Device::cuda(0), false).unwrap()
}

#[test]
fn lanes_are_a_trailing_dimension_for_cai_where_there_are_several() {
    for (lanes, shape, strides, size) in
        [(1, &[2, 3][..], &[12, 4][..], 6), (4, &[2, 3, 4], &[48, 16, 4], 24)]
    {
        let array = floats(&[2, 3], lanes);
        assert_eq!(
            (array.cai_shape().as_slice(), array.cai_strides().as_slice()),
            (shape, strides)
        );
        assert_eq!(array.cai_size(), size);
        let tensor = encode::borrowed(&array);
        assert_eq!((tensor.ndim, tensor.dtype.lanes), (2, lanes));
    }
}

#[test]
fn layout_reach_and_type_are_of_one_array() {
    for row in rows(&table("layout.toml"), "described") {
        let strides = row.get("strides").map(ints);
        let size = int(&row, "itemsize");
        let (layout, said) =
            Layout::from_elements(&ints(&row["shape"]), strides.as_deref(), size).unwrap();
        let reach = row.get("reach").map(ints).map_or(said, |reach| Reach {
            below: reach[0].unsigned_abs(),
            above: reach[1].unsigned_abs(),
        });
        let dtype = Dtype::from_name(text(&row, "dtype")).unwrap();
        let device = Device::cuda(int(&row, "device") as i32);
        let ptr = int(&row, "ptr").unsigned_abs();
        let made = Descriptor::new(ptr, dtype, (layout, reach), device, false);
        let kind = made.err().map(|error| error.kind().name());
        assert_eq!(kind, row.get("kind").map(|_| text(&row, "kind")), "{row:?}");
    }
}

#[test]
fn nothing_is_pending_where_there_is_nothing() {
    let ready = Ready::On(Stream::Legacy);
    assert_eq!(floats(&[2, 3], 1).pending(ready), ready);
    let empty = floats(&[2, 0], 1);
    assert_eq!((empty.ptr(), empty.pending(ready)), (0, Ready::Nothing));
}

#[test]
fn the_fields_of_a_tensor_say_what_the_tensor_of_c_says() {
    for array in [floats(&[2, 3], 1), floats(&[2], 4), floats(&[0, 3], 1), floats(&[], 1)] {
        for array in [array.clone(), array.with_readonly(Some(true))] {
            assert_eq!(Fields::of(&array).decode().as_ref(), Ok(&array));
            let tensor = encode::versioned(&array, Box::new(())).unwrap();
            assert_eq!(decode::managed(&tensor).as_ref(), Ok(&array));
        }
    }
    let packed = Dtype::of_dlpack(17, 4, 1).unwrap().with_padding(true);
    let layout = Layout::from_elements(&[3], None, packed.element_size()).unwrap();
    let array = Descriptor::new(4096, packed, layout, Device::cuda(0), false).unwrap();
    assert_eq!(Fields::of(&array).decode(), Ok(array));
}

#[test]
fn a_tensors_fields_are_refused_one_by_one() {
    let array = floats(&[2, 3], 1);
    let right = Fields::of(&array);
    let wrong = [
        (ErrorKind::DlpackVersion, Fields { version: Some((2, 0)), ..right }),
        (ErrorKind::CpuMemory, Fields { device: (1, 0), ..right }),
        (ErrorKind::Lanes, Fields { dtype: (2, 32, 0), ..right }),
        (ErrorKind::Ndim, Fields { shape: &[1; 65], strides: None, version: None, ..right }),
        (ErrorKind::Ndim, Fields { dtype: (2, 32, 2), shape: &[1; 64], strides: None, ..right }),
        (ErrorKind::NullStrides, Fields { strides: None, ..right }),
        (ErrorKind::StridesMalformed, Fields { strides: Some(&[1]), ..right }),
        (ErrorKind::ShapeNegative, Fields { shape: &[2, -1], ..right }),
        (ErrorKind::NullData, Fields { data: 0, ..right }),
        (ErrorKind::ByteOffset, Fields { byte_offset: u64::MAX, ..right }),
    ];
    for (kind, fields) in wrong {
        assert_eq!(fields.decode().unwrap_err().kind(), kind, "{fields:?}");
    }
    for version in [None, Some((1, 1))] {
        assert_eq!(Fields { strides: None, version, ..right }.decode().as_ref(), Ok(&array));
    }
    let scalar = floats(&[], 1);
    let fields = Fields { strides: None, ..Fields::of(&scalar) };
    assert_eq!(fields.decode(), Ok(scalar), "NULL, as `dlpack.h` allows for no dimensions");
}
