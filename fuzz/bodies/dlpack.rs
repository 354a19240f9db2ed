//! Fuzzes `DLTensor`s with arbitrary values, and the managed tensors made from accepted ones.
//!
//! Only values are wrong. Each pointer to a list leads to as many integers as any accepted count.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dlpack::decode::{self, Header};
use cai_bridge::dlpack::encode;
use cai_bridge::dtype::Dtype;
use cai_bridge::error::Kind;
use cai_bridge::layout::{Layout, MAX_NDIM};
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackVersion, DLTensor,
};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};

use super::choices::Bytes;
use super::layout;

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let given = bytes.byte();
    let dtype = dtype(&mut bytes);
    let device = DLDevice {
        device_type: DLDeviceType(if given < 240 {
            bytes.pick(&[2, 3, 13])
        } else {
            bytes.byte().into()
        }),
        device_id: if given % 16 > 0 {
            i32::from(bytes.byte() & 7)
        } else {
            i32::from_le_bytes(bytes.take())
        },
    };
    let (data, byte_offset) = (bytes.address(), if bytes.flag() { 0 } else { bytes.address() });
    let version = (!bytes.flag()).then(|| DLPackVersion {
        major: if given < 250 { 1 } else { bytes.byte().into() },
        minor: u32::from(bytes.byte() % 4),
    });
    let flags = version.map_or(0, |_| u64::from(bytes.byte()));
    let (no_shape, no_strides) = (bytes.byte() > 250, bytes.byte() > 127);
    let mut shape = bytes.ints();
    let mut strides = layout::strides(&mut bytes, shape.len());
    let ndim = if given == 239 {
        i32::from_le_bytes(bytes.take())
    } else {
        shape.len().try_into().unwrap()
    };
    shape.resize(MAX_NDIM, 1);
    strides.resize(MAX_NDIM, 1);
    let tensor = DLTensor {
        data: data as *mut _,
        device,
        ndim,
        dtype,
        shape: if no_shape { std::ptr::null_mut() } else { shape.as_mut_ptr() },
        strides: if no_strides { std::ptr::null_mut() } else { strides.as_mut_ptr() },
        byte_offset,
    };
    let header = Header { version, flags: DlpackFlags::from_bits_retain(flags) };
    let shape = (!no_shape).then_some(&shape[..]);
    check(&tensor, header, shape, (!no_strides).then_some(&strides[..]));
}

/// A DLPack dtype, usually one from the table.
fn dtype(bytes: &mut Bytes<'_>) -> DLDataType {
    let at = bytes.byte();
    let lanes = if bytes.byte() < 200 { 1 } else { u16::from_le_bytes(bytes.take()) };
    let (code, bits) = match Dtype::all().nth((at % 30).into()) {
        Some(dtype) => (dtype.code(), dtype.bits()),
        None => (bytes.byte(), bytes.byte()),
    };
    DLDataType { code: DLDataTypeCode(code), bits, lanes }
}

/// The array that the tensor describes, or every reason to refuse it.
fn expected(
    tensor: &DLTensor,
    header: Header,
    shape: Option<&[i64]>,
    strides: Option<&[i64]>,
) -> Result<Descriptor, Vec<Kind>> {
    let mut reasons = Vec::new();
    if header.version.is_some_and(|version| version.major != 1) {
        return Err(vec![Kind::DlpackVersion]);
    }
    let kind = |error: cai_bridge::error::Error| error.kind();
    let DLDevice { device_type, device_id } = tensor.device;
    let device = Device::from_dlpack(device_type.0, device_id).map_err(kind);
    let padded = header.flags.contains(DlpackFlags::IS_SUBBYTE_TYPE_PADDED);
    let dtype = Dtype::of_dlpack(tensor.dtype.code.0, tensor.dtype.bits, tensor.dtype.lanes)
        .map(|dtype| dtype.with_padding(padded))
        .map_err(kind);
    reasons.extend(device.err());
    reasons.extend(dtype.err());
    let most = 64 - i32::from(tensor.dtype.lanes > 1);
    if !(0..=most).contains(&tensor.ndim) {
        reasons.push(Kind::Ndim);
        return Err(reasons);
    }
    let ndim = usize::try_from(tensor.ndim).unwrap();
    let cut = |list: Option<&[i64]>| {
        if ndim == 0 { Some(vec![]) } else { list.map(|list| list[..ndim].to_vec()) }
    };
    let (shape, strides) = (cut(shape), cut(strides));
    if shape.is_none() {
        reasons.push(Kind::NullShape);
    }
    if strides.is_none() && header.version.is_some_and(|version| version.minor >= 2) {
        reasons.push(Kind::NullStrides);
    }
    let (Some(shape), Ok(dtype), Ok(device), []) = (shape, dtype, device, &reasons[..]) else {
        return Err(reasons);
    };
    let refused = layout::reasons(&shape, strides.as_deref(), dtype.element_size());
    if !refused.is_empty() {
        return Err(refused);
    }
    let layout = Layout::from_elements(&shape, strides.as_deref(), dtype.element_size()).unwrap();
    let (base, empty) = (tensor.data as u64, layout.0.size() == 0);
    if base == 0 && !empty {
        return Err(vec![Kind::NullData]);
    }
    let Some(ptr) = base.checked_add(tensor.byte_offset).or(empty.then_some(0)) else {
        return Err(vec![Kind::ByteOffset]);
    };
    let readonly = header.flags.contains(DlpackFlags::READ_ONLY);
    Descriptor::new(ptr, dtype, layout, device, readonly).map_err(|error| vec![kind(error)])
}

fn check(tensor: &DLTensor, header: Header, shape: Option<&[i64]>, strides: Option<&[i64]>) {
    let checked = header.version.map_or(Ok(()), decode::check_version);
    // SAFETY: `shape` and `strides` are NULL or point to 64 integers. More dimensions are refused.
    let read = checked.and_then(|()| unsafe { decode::descriptor(tensor, header) });
    match (read, expected(tensor, header, shape, strides)) {
        (Ok(array), Ok(expected)) => {
            assert_eq!(array, expected);
            again(&array, tensor.byte_offset);
        }
        (Err(error), Err(reasons)) => {
            assert!(reasons.contains(&error.kind()), "{error} of {reasons:?}")
        }
        (read, expected) => panic!("{read:?}, not {expected:?}"),
    }
    let copied = decode::check_own(header.flags).is_err();
    assert_eq!(copied, header.flags.contains(DlpackFlags::IS_COPIED));
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Checks that every tensor made from `array` describes the same array, and drops its owner once.
fn again(array: &Descriptor, byte_offset: u64) {
    let drops = Arc::new(AtomicUsize::new(0));
    let made = Cell::new(0);
    let keep = || {
        made.set(made.get() + 1);
        Box::new(Counted(Arc::clone(&drops)))
    };
    // SAFETY: the crate itself made these tensors.
    unsafe {
        let versioned = encode::versioned(array, keep()).unwrap();
        let header = Header { version: Some(versioned.version()), flags: versioned.flags() };
        same(array, versioned.tensor(), header);
        same(array, &encode::borrowed(array), header);
        match encode::legacy(array, keep()) {
            Ok(legacy) => {
                same(&array.clone().with_readonly(Some(false)), legacy.tensor(), Header::LEGACY)
            }
            Err(error) if array.readonly() => assert_eq!(error.kind(), Kind::ReadOnlyLegacy),
            Err(error) => assert!(array.dtype().is_padded() && error.kind() == Kind::SubByte),
        }
        let behind: Managed<DLManagedTensorVersioned> =
            encode::with_byte_offset(array, byte_offset, keep()).unwrap();
        assert_eq!(behind.tensor().byte_offset, byte_offset.min(array.ptr()));
        // With an offset equal to the whole address the pointer is NULL. No other producer makes
        // such a tensor.
        if behind.tensor().byte_offset < array.ptr() {
            same(array, behind.tensor(), header);
        }
        copied::<DLManagedTensorVersioned>(array, keep());
        copied::<DLManagedTensor>(array, keep());
    }
    assert_eq!(drops.load(Ordering::SeqCst), made.get());
}

/// # Safety
///
/// `tensor` must fulfil the contract of `decode::descriptor`.
unsafe fn same(array: &Descriptor, tensor: &DLTensor, header: Header) {
    assert!(tensor.ndim == 0 || !tensor.strides.is_null(), "strides are explicit");
    // SAFETY: as the caller promises.
    assert_eq!(&unsafe { decode::descriptor(tensor, header) }.unwrap(), array);
}

fn copied<M: ManagedTensorBase>(array: &Descriptor, keep: Box<Counted>) {
    let on_host: Managed<M> = encode::copied(array, true, keep).unwrap();
    // SAFETY: made by the line above.
    let device = unsafe { on_host.tensor() }.device;
    assert_eq!((device.device_type, device.device_id), (DLDeviceType::CPU, 0));
}
