//! The bridge without features: a dict's entries, a tensor's fields, a typestr and a layout.

use cai_bridge::cai::{Fields, encode};
use cai_bridge::dlpack;
use cai_bridge::dtype::Typestr;
use cai_bridge::layout::{Layout, Reach};
use cai_bridge::stream::{Ready, Stream, Thread};
use cai_bridge::{Descriptor, Device, Result};

fn main() -> Result<()> {
    // A dict in: `type_name` is for "<V2" and "|V1", which do not say their type.
    let fields = Fields {
        shape: [2, 3].into_iter().collect(),
        typestr: "<f4",
        data: (0x7f00_0000, false),
        strides: Some([16, 4].into_iter().collect()),
        version: 3,
        stream: Some(1),
        structured: false,
    };
    let (dict, layout) = fields.decode(None)?;
    println!("{} {:?} {:?}", dict.dtype.name(), layout.strides(), dict.claim); // float32 [4, 1] Stated(On(Legacy))

    // The driver knows the device by the pointer, which is checked here.
    let gpu = Device::cuda(0);
    let array = Descriptor::new(dict.ptr, dict.dtype, (layout, dict.reach), gpu, dict.readonly)?;
    let tensor = dlpack::Fields::of(&array); // for a `DLTensor`
    println!("{:?} {:?}", tensor.dtype, tensor.strides); // (2, 32, 1) Some([4, 1])
    assert_eq!(tensor.decode()?, array);

    // A dict out.
    let dict = encode(&array, Ready::On(Stream::Legacy), Thread::current())?;
    println!("{} {:?} {:?}", dict.typestr, dict.data, dict.stream); // <f4 (2130706432, false) Some(1)

    // A typestr and a layout alone.
    let dtype = Typestr::parse("<V2")?.resolve("<V2", Some("bfloat16"))?;
    let (columns, reach) = Layout::from_bytes(&[2, 3], Some(&[2, 4]), dtype.itemsize())?;
    assert!(columns.is_compact() && !columns.is_contiguous());
    assert_eq!(reach, Reach { below: 0, above: 12 });
    Ok(())
}
