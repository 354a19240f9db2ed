//! What crosses between the protocols: lanes, what is pending, the pointer of nothing.

use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dtype::Dtype;
use cai_bridge::layout::Layout;
use cai_bridge::stream::{Ready, Stream};

fn floats(shape: &[i64], lanes: u16) -> Descriptor {
    let dtype = Dtype::from_dlpack(2, 32, lanes).unwrap();
    let layout = Layout::from_elements(shape, None, dtype.element_size()).unwrap();
    Descriptor::new(4096, dtype, layout, Device::cuda(0), false).unwrap()
}

#[test]
fn lanes_are_a_trailing_dimension_for_cai_where_there_are_several() {
    let plain = floats(&[2, 3], 1);
    assert_eq!(plain.cai_shape().as_slice(), [2, 3]);
    assert_eq!(plain.cai_strides().as_slice(), [12, 4]);
    assert_eq!(plain.cai_size(), 6);
    let wide = floats(&[2, 3], 4);
    assert_eq!(wide.cai_shape().as_slice(), [2, 3, 4]);
    assert_eq!(wide.cai_strides().as_slice(), [48, 16, 4]);
    assert_eq!(wide.cai_size(), 24);
}

#[test]
fn nothing_is_pending_where_there_is_nothing() {
    let ready = Ready::On(Stream::Legacy);
    assert_eq!(floats(&[2, 3], 1).pending(ready), ready);
    let empty = floats(&[2, 0], 1);
    assert_eq!((empty.ptr(), empty.pending(ready)), (0, Ready::Nothing));
}
