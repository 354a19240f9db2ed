//! Fuzzes the fields of a CAI dict. A refusal must have a reason that holds; an accepted dict is read as it says, and
//! written back the same.

use cai_bridge::cai::{Claim, Decoded, Dialect, Fields, VERSION, decode, encode, is_of_dlpacks};
use cai_bridge::descriptor::Descriptor;
use cai_bridge::device::Device;
use cai_bridge::dtype::{Dtype, Typestr};
use cai_bridge::error::Kind;
use cai_bridge::layout::{Dims, Layout};
use cai_bridge::stream::{Ready, Stream, Thread};

use super::choices::Bytes;
use super::{dtype, layout, stream};

const HERE: Thread = Thread::numbered(1);

pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let odd = bytes.byte();
    let typestr = dtype::typestr(&mut bytes);
    let name = dtype::name(&mut bytes);
    let shape = bytes.ints();
    let strides = bytes.flag().then(|| {
        let read =
            Typestr::parse(&typestr).and_then(|read| read.resolve(&typestr, name.as_deref()));
        let item = read.map_or(1, Dtype::itemsize);
        let strides = layout::strides(&mut bytes, shape.len());
        strides.into_iter().map(|stride| stride.wrapping_mul(item)).collect::<Vec<_>>()
    });
    let unnamed = [None, Some(Stream::Legacy), Some(Stream::PerThread(HERE))];
    let fields = Fields {
        shape: shape.iter().copied().collect(),
        typestr: &typestr,
        data: (bytes.address(), bytes.flag()),
        strides: strides.as_ref().map(|strides| strides.iter().copied().collect()),
        version: if odd < 240 { i64::from(odd % 4) } else { bytes.int() },
        stream: stream::integer(&mut bytes),
        structured: bytes.byte() > 250,
    };
    let unnamed = bytes.pick(&unnamed);
    check(
        &fields,
        name.as_deref(),
        Dialect { here: HERE, unnamed, declared: bytes.flag(), goes_on: false, dtype: None },
    );
}

/// Every reason to refuse a dict, apart from its shape and strides.
fn reasons(fields: &Fields<'_>, dtype: Result<Dtype, Kind>, dialect: Dialect) -> Vec<Kind> {
    let mut reasons = Vec::new();
    if !(0..=3).contains(&fields.version) {
        reasons.push(Kind::CaiVersion);
    }
    if fields.structured {
        reasons.push(Kind::Dtype);
    }
    reasons.extend(dtype.err());
    match fields.stream {
        Some(0) if fields.version == VERSION && dialect.unnamed.is_some() => {}
        Some(0 | -1) if dialect.declared => {}
        Some(0) => reasons.push(Kind::StreamZero),
        Some(value) if u64::try_from(value).is_err() => reasons.push(Kind::StreamNoOrder),
        _ => {}
    }
    reasons
}

/// What the dict says about pending work, by the table in docs/guarantees.md.
fn claim(fields: &Fields<'_>, dialect: Dialect) -> Claim {
    match (fields.stream, fields.version, dialect.unnamed) {
        (None | Some(0), 3, Some(stream)) => Claim::Stated(Ready::On(stream)),
        (None, 3, None) => Claim::Stated(Ready::Nothing),
        (None, ..) => Claim::Silent,
        (Some(0 | -1), ..) if dialect.declared => Claim::Silent,
        (Some(1), ..) => Claim::Stated(Ready::On(Stream::Legacy)),
        (Some(2), ..) => Claim::Stated(Ready::On(Stream::PerThread(HERE))),
        (Some(handle), ..) => Claim::Stated(Ready::On(Stream::Handle(handle.try_into().unwrap()))),
    }
}

fn check(fields: &Fields<'_>, name: Option<&str>, dialect: Dialect) {
    let mut found = Layout::EMPTY;
    let decoded = decode(fields, dialect, || name.map(str::to_owned), &mut found);
    let read = Typestr::parse(fields.typestr);
    let dtype = read
        .clone()
        .and_then(|read| match read {
            Typestr::Exact(dtype) => Ok(dtype),
            Typestr::Opaque(_) => read.resolve(fields.typestr, name),
        })
        .map_err(|error| error.kind());
    let mut reasons = reasons(fields, dtype, dialect);
    let layout = dtype.map(|dtype| {
        let strides = fields.strides.as_ref().map(Dims::as_slice);
        Layout::from_bytes(fields.shape.as_slice(), strides, dtype.itemsize())
    });
    reasons.extend(
        layout.as_ref().ok().and_then(|made| made.as_ref().err()).map(|error| error.kind()),
    );
    alone(fields, name, &reasons, dialect);
    if let Ok(Typestr::Exact(dtype)) = read
        && name.is_some_and(|name| name != dtype.name())
    {
        assert!(fields.decode(name).is_err(), "{fields:?} {name:?}");
    }
    match decoded {
        Err(error) => assert!(reasons.contains(&error.kind()), "{error} of {reasons:?}"),
        Ok(decoded) => {
            assert_eq!(reasons, [], "{fields:?}");
            let (ptr, readonly) = fields.data;
            let (dtype, (layout, reach)) = (dtype.unwrap(), layout.unwrap().unwrap());
            let (version, claim) = (fields.version, claim(fields, dialect));
            let said = (decoded.version, decoded.ptr, decoded.readonly, decoded.dtype);
            assert_eq!(said, (version, ptr, readonly, dtype));
            assert_eq!((decoded.reach, decoded.claim), (reach, claim));
            assert_eq!(found, layout);
            again(decoded, layout);
        }
    }
}

/// Decodes for a consumer of CAI. An array that DLPack cannot express is read by its bytes, and written back the same.
fn alone(fields: &Fields<'_>, name: Option<&str>, reasons: &[Kind], dialect: Dialect) {
    let (mut layout, dialect) = (Layout::EMPTY, Dialect { goes_on: true, ..dialect });
    let decoded = decode(fields, dialect, || name.map(str::to_owned), &mut layout);
    let Some(Decoded { ptr, readonly, dtype, reach, .. }) = decoded.ok() else {
        assert_ne!(reasons, [], "{fields:?}");
        return;
    };
    assert_eq!(dtype.is_cais_alone(), !reasons.is_empty(), "{fields:?}");
    if !dtype.is_cais_alone() {
        return;
    }
    assert!(reasons.iter().any(|kind| is_of_dlpacks(*kind)), "{reasons:?}");
    let itemsize = Typestr::itemsize(fields.typestr).unwrap();
    let made = Descriptor::new(ptr, dtype, (layout, reach), Device::cuda(0), readonly);
    let Ok(array) = made else { return };
    let entries = encode(&array, Ready::Nothing, HERE).unwrap();
    assert_eq!(entries.shape.collect::<Dims>(), fields.shape);
    assert_eq!(array.cai_itemsize(), itemsize);
    assert_eq!(i128::from(array.nbytes()), i128::from(array.cai_size()) * i128::from(itemsize));
    if let Some(strides) = entries.strides {
        assert_eq!(Some(strides.collect()), fields.strides);
    }
}

/// Writes what was read as a version 3 dict, which must read back the same.
fn again(decoded: Decoded, layout: Layout) {
    let Decoded { ptr, readonly, dtype, reach, claim, .. } = decoded;
    let gpu = Device::cuda(0);
    let Ok(array) = Descriptor::new(ptr, dtype, (layout, reach), gpu, readonly) else { return };
    let ready =
        if let Claim::Stated(ready) = claim { array.pending(ready) } else { Ready::Nothing };
    let entries = encode(&array, ready, HERE).unwrap();
    let fields = Fields {
        shape: entries.shape.collect(),
        typestr: entries.typestr,
        data: entries.data,
        strides: entries.strides.map(Iterator::collect),
        version: VERSION,
        stream: entries.stream.map(i128::from),
        structured: false,
    };
    assert_eq!(fields.strides.is_none(), array.layout().is_contiguous());
    let dialect =
        Dialect { here: HERE, unnamed: None, declared: false, goes_on: false, dtype: None };
    let mut seen = Layout::EMPTY;
    let read = decode(&fields, dialect, || Some(dtype.name().to_owned()), &mut seen).unwrap();
    assert_eq!((read.ptr, read.readonly, read.dtype), (array.ptr(), readonly, dtype));
    assert_eq!((read.ptr == 0, read.claim), (array.layout().size() == 0, Claim::Stated(ready)));
    assert_eq!(seen.shape(), array.layout().shape());
    assert!(array.layout().is_contiguous() || seen.strides() == array.layout().strides());
    assert_eq!(seen.is_contiguous(), array.layout().is_contiguous());
    Descriptor::new(read.ptr, dtype, (seen, read.reach), gpu, readonly).unwrap();
}
