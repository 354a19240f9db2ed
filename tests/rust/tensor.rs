//! DLTensors in and out, without Python.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dlpack::{decode, encode};
use cai_bridge::dtype::Dtype;
use cai_bridge::layout::Layout;
use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use toml::Value;

use crate::tables::{ints, rows, table, text};

#[test]
fn refused_tensors_say_what_was_wrong_what_it_was_and_what_is_allowed() {
    for row in rows(&table("refusals.toml"), "tensor") {
        let set = row.get("set").and_then(Value::as_table).cloned().unwrap_or_default();
        let int = |key: &str, default: i64| {
            set.get(key).map_or(default, |value| value.as_integer().unwrap())
        };
        let listed = |key: &str, name: &str| {
            row.get(key).is_some_and(|names| {
                names.as_array().unwrap().iter().any(|item| item.as_str() == Some(name))
            })
        };
        let mut shape = set.get("shape").map_or(vec![4], ints);
        let mut strides = set.get("strides").map_or(vec![1], ints);
        let tensor = DLTensor {
            data: if listed("null", "data") { std::ptr::null_mut() } else { 0x7000 as *mut _ },
            device: DLDevice {
                device_type: DLDeviceType(int("device_type", 2) as u32),
                device_id: int("device_id", 0) as i32,
            },
            ndim: int("ndim", 1) as i32,
            dtype: DLDataType {
                code: DLDataTypeCode(int("code", 2) as u8),
                bits: int("bits", 32) as u8,
                lanes: int("lanes", 1) as u16,
            },
            shape: if listed("null", "shape") { std::ptr::null_mut() } else { shape.as_mut_ptr() },
            strides: if listed("null", "strides") {
                std::ptr::null_mut()
            } else {
                strides.as_mut_ptr()
            },
            byte_offset: if listed("max", "byte_offset") {
                u64::MAX
            } else {
                int("byte_offset", 0) as u64
            },
        };
        let form = row.get("form").map_or("1.3", |form| form.as_str().unwrap());
        let (major, minor) = form.split_once('.').unwrap();
        let version =
            DLPackVersion { major: major.parse().unwrap(), minor: minor.parse().unwrap() };
        let header = decode::Header {
            version: Some(version),
            flags: DlpackFlags::from_bits_retain(int("flags", 0) as u64),
        };
        // SAFETY: shape and strides are NULL or hold the one dimension that accepted rows have.
        let read = decode::check_version(version)
            .and_then(|()| unsafe { decode::descriptor(&tensor, header) })
            // What DLPack alone has is refused where the other protocol comes in.
            .and_then(|array| array.dtype().check_shared());
        let error = read.expect_err(&format!("{row:?}"));
        assert_eq!(error.kind().name(), text(&row, "kind"), "{row:?}");
        assert_eq!(error.field(), text(&row, "field"), "{row:?}");
        assert!(error.got().contains(text(&row, "got")), "{error}");
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn arrays() -> Vec<Descriptor> {
    let layouts: [(&[i64], &[i64]); 4] =
        [(&[], &[]), (&[3], &[-2]), (&[2, 3], &[1, 2]), (&[2, 0], &[0, 1])];
    let mut all = Vec::new();
    for dtype in Dtype::all() {
        for (shape, strides) in layouts {
            for readonly in [false, true] {
                let layout = Layout::from_elements(shape, Some(strides), dtype.element_size());
                let device = Device::from_dlpack([2, 3, 13][all.len() % 3], 0).unwrap();
                let array = Descriptor::new(0x7000, dtype, layout.unwrap(), device, readonly);
                all.push(array.unwrap());
            }
        }
    }
    all
}

#[test]
fn a_tensor_says_again_what_the_descriptor_said_and_drops_its_owner_once() {
    for array in arrays() {
        let drops = Arc::new(AtomicUsize::new(0));
        let managed = encode::versioned(&array, Box::new(Counted(Arc::clone(&drops)))).unwrap();
        assert_eq!(decode::managed(&managed).as_ref(), Ok(&array));
        // SAFETY: made just above.
        let tensor = unsafe { managed.tensor() };
        assert_eq!(tensor.byte_offset, 0);
        assert!(tensor.ndim == 0 || !tensor.strides.is_null(), "strides are explicit");
        let header = decode::Header { version: Some(managed.version()), flags: managed.flags() };
        // SAFETY: it borrows the descriptor's own lists.
        let borrowed = unsafe { decode::descriptor(&encode::borrowed(&array), header) };
        assert_eq!(borrowed.as_ref(), Ok(&array));
        drop(managed);
        assert_eq!(drops.load(Ordering::SeqCst), 1);

        // A legacy one cannot be read-only, and drops its owner where it is refused, too.
        match encode::legacy(&array, Box::new(Counted(Arc::clone(&drops)))) {
            Ok(managed) => {
                assert!(!array.readonly());
                assert_eq!(decode::managed_legacy(&managed).as_ref(), Ok(&array));
            }
            Err(error) => assert!(array.readonly() && error.kind().name() == "ReadOnlyLegacy"),
        }
        assert_eq!(drops.load(Ordering::SeqCst), 2);

        // A byte offset lies between the data pointer and the first element, where there is one.
        let managed =
            encode::with_byte_offset::<DLManagedTensorVersioned, _>(&array, 256, Box::new(()));
        let managed = managed.unwrap();
        // SAFETY: made just above.
        let tensor = unsafe { managed.tensor() };
        let wanted = if array.ptr() == 0 { (0, 0) } else { (0x6F00, 256) };
        assert_eq!((tensor.data as u64, tensor.byte_offset), wanted);
        assert_eq!(decode::managed(&managed), Ok(array));
    }
}

#[test]
fn null_strides_are_contiguous_in_legacy_and_in_versions_before_1_2() {
    let mut shape = [2_i64, 3];
    let tensor = DLTensor {
        data: 0x7000 as *mut _,
        device: DLDevice { device_type: DLDeviceType(2), device_id: 1 },
        ndim: 2,
        dtype: DLDataType { code: DLDataTypeCode(2), bits: 32, lanes: 1 },
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 256,
    };
    let early = |minor| Some(DLPackVersion { major: 1, minor });
    for version in [None, early(0), early(1)] {
        let header = decode::Header { version, flags: DlpackFlags::empty() };
        // SAFETY: two extents; strides are NULL.
        let array = unsafe { decode::descriptor(&tensor, header) }.unwrap();
        assert_eq!((array.ptr(), array.device().id), (0x7100, 1), "byte_offset is added");
        assert_eq!(array.layout().strides(), [3, 1]);
    }
}

#[test]
fn a_copy_is_not_taken_for_the_objects_own_memory() {
    let refused = decode::check_own(DlpackFlags::IS_COPIED).unwrap_err();
    assert_eq!((refused.kind().name(), refused.got()), ("Copied", "IS_COPIED"));
    decode::check_own(DlpackFlags::READ_ONLY).unwrap();
    decode::check_own(DlpackFlags::empty()).unwrap();
}
