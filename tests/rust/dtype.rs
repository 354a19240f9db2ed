use cai_bridge::dtype::{Dtype, Typestr};

use crate::tables::{int, rows, table, text};

#[test]
fn every_row_goes_from_dldatatype_to_typestr_and_back() {
    let table = table("dtype.toml");
    let rows = rows(&table, "dtype");
    assert_eq!(rows.len(), Dtype::all().count(), "the table and the code have the same types");
    for row in rows {
        let name = text(&row, "name");
        let (code, bits) = (int(&row, "code") as u8, int(&row, "bits") as u8);
        let dtype = Dtype::from_dlpack(code, bits, 1).unwrap();
        assert_eq!((dtype.name(), dtype.typestr()), (name, text(&row, "typestr")));
        assert_eq!(
            (dtype.code(), dtype.bits(), dtype.itemsize()),
            (code, bits, i64::from(bits) / 8)
        );
        assert_eq!(Dtype::from_name(name), Some(dtype));
        let read = Typestr::parse(dtype.typestr()).unwrap();
        if row["exact"].as_bool().unwrap() {
            assert_eq!(read, Typestr::Exact(dtype), "{name}");
            for said in [None, Some(name)] {
                assert_eq!(read.resolve(dtype.typestr(), said).unwrap(), dtype);
            }
            let other = if name == "int32" { "uint32" } else { "int32" };
            for said in [other, "no type"] {
                let refused = read.resolve(dtype.typestr(), Some(said)).unwrap_err();
                assert_eq!(refused.kind().name(), "DtypeDiffers");
            }
        } else {
            assert_eq!(read, Typestr::Opaque(dtype.itemsize()), "{name}");
            assert_eq!(read.resolve(dtype.typestr(), Some(name)).unwrap(), dtype);
            for said in [None, Some("float32")] {
                let refused = read.resolve(dtype.typestr(), said).unwrap_err();
                assert_eq!(refused.kind().name(), "DtypeAmbiguous");
            }
        }
    }
}

#[test]
fn other_spellings_of_a_typestr_mean_the_type_of_their_row() {
    for row in rows(&table("dtype.toml"), "spelling") {
        let typestr = text(&row, "typestr");
        let read = Typestr::parse(typestr).unwrap();
        match row.get("opaque") {
            None => assert_eq!(
                read,
                Typestr::Exact(Dtype::from_name(text(&row, "name")).unwrap()),
                "{typestr}"
            ),
            Some(size) => {
                assert_eq!(read, Typestr::Opaque(size.as_integer().unwrap()), "{typestr}");
                let name = text(&row, "dtype");
                assert_eq!(read.resolve(typestr, Some(name)).unwrap().name(), name);
            }
        }
    }
}

#[test]
fn types_that_autograd_could_follow_and_complex_ones_are_told_by_their_names() {
    for dtype in Dtype::all() {
        let name = dtype.name();
        let exact = ["bool", "int", "uint"].iter().any(|kind| name.starts_with(kind));
        assert_eq!(dtype.is_inexact(), !exact, "{name}");
        assert_eq!(dtype.is_complex(), name.starts_with("complex"), "{name}");
        assert_eq!(format!("{dtype:?}"), name);
    }
    let vector = Dtype::from_dlpack(2, 32, 4).unwrap();
    assert_eq!(format!("{vector:?}"), "float32x4");
}

#[test]
fn refused_dldatatypes_name_what_they_were() {
    for row in rows(&table("dtype.toml"), "refused") {
        let (code, bits, lanes) =
            (int(&row, "code") as u8, int(&row, "bits") as u8, int(&row, "lanes") as u16);
        let error = Dtype::from_dlpack(code, bits, lanes).unwrap_err();
        assert_eq!(error.kind().name(), text(&row, "kind"), "{row:?}");
    }
}

#[test]
fn no_dldatatype_panics_and_each_accepted_one_is_in_the_table() {
    for code in 0..=u8::MAX {
        for bits in 0..=u8::MAX {
            for lanes in [0, 1, 2, u16::MAX] {
                if let Ok(dtype) = Dtype::from_dlpack(code, bits, lanes) {
                    assert!(Dtype::all().any(|known| (known.code(), known.bits()) == (code, bits)));
                    assert_eq!(dtype.element_size(), i64::from(bits) / 8 * i64::from(lanes));
                }
            }
        }
    }
}

#[test]
fn no_typestr_panics() {
    let letters: Vec<char> = "<>|=biufcVSaUOmMt0123489[]\u{e9}\u{0} ".chars().collect();
    let mut words = vec![String::new()];
    for _ in 0..4 {
        let longer: Vec<String> = words
            .iter()
            .flat_map(|word| letters.iter().map(move |letter| format!("{word}{letter}")))
            .collect();
        for word in &longer {
            let _ = Typestr::parse(word);
        }
        words = longer.into_iter().filter(|word| word.len() < 4).collect();
    }
}

#[test]
fn a_name_has_to_be_of_a_type_that_the_opaque_typestr_can_stand_for() {
    for (size, text, name) in
        [(2, "<V2", "float16"), (2, "<V2", "int16"), (1, "|V1", "uint8"), (1, "|V1", "bfloat16")]
    {
        let refused = Typestr::Opaque(size).resolve(text, Some(name)).unwrap_err();
        assert_eq!(refused.kind().name(), "DtypeAmbiguous", "{text} named {name}");
    }
}
