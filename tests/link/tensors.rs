//! The bridge with managed tensors alone.

use cai_bridge::dlpack::{Fields, encode};

fn main() -> cai_bridge::Result<()> {
    let fields = Fields {
        data: 0x7f00_0000,
        device: (2, 0),
        dtype: (2, 32, 1),
        shape: &[2, 3],
        strides: None,
        byte_offset: 0,
        version: None,
        readonly: false,
        padded: false,
    };
    let tensor = encode::versioned(&fields.decode()?, Box::new(()))?;
    println!("{:?}", tensor.version());
    Ok(())
}
