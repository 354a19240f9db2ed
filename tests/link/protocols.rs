//! The bridge without features: a typestr, a layout, a dict's entries and a tensor's fields.

use cai_bridge::cai::encode;
use cai_bridge::dlpack::Fields;
use cai_bridge::dtype::Typestr;
use cai_bridge::layout::Layout;
use cai_bridge::stream::{Ready, Stream, Thread};
use cai_bridge::{Descriptor, Device, Result};

fn main() -> Result<()> {
    let dtype = Typestr::parse("<f4")?.resolve("<f4", None)?;
    let layout = Layout::from_bytes(&[2, 3], Some(&[16, 4]), dtype.itemsize())?;
    println!("{} {}", dtype.name(), layout.0.is_contiguous()); // float32 false

    let array = Descriptor::new(0x7f00_0000, dtype, layout, Device::cuda(0), false)?;
    let tensor = Fields::of(&array); // for a `DLTensor`
    println!("{:?} {:?}", tensor.dtype, tensor.strides); // (2, 32, 1) Some([4, 1])
    assert_eq!(tensor.decode()?, array);

    let dict = encode(&array, Ready::On(Stream::Legacy), Thread::current())?;
    println!("{} {:?} {:?}", dict.typestr, dict.data, dict.stream); // <f4 (2130706432, false) Some(1)
    Ok(())
}
