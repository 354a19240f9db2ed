//! The bridge without features: a typestr, and a layout.

use cai_bridge::Result;
use cai_bridge::dtype::Typestr;
use cai_bridge::layout::Layout;

fn main() -> Result<()> {
    let dtype = Typestr::parse("<f4")?.resolve("<f4", None)?;
    let (layout, _) = Layout::from_bytes(&[2, 3], Some(&[12, 4]), dtype.itemsize())?;
    println!("{} {}", dtype.name(), layout.is_contiguous());
    Ok(())
}
