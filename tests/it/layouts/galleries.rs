//! Galleries of embeddings.

use super::*;
use crate::common::npy;
use audit::data::vectors;

#[test]
fn galleries_of_embeddings() {
    let root = Transcript::new(Temp::new());
    let at = root.join("gallery.npy");
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(&at, npy("<f4", "(3, 2)", &values)).unwrap();
    root.write("gallery.csv", "id,label,camera\na,x,1\nb,x,\nc,y,2\n");
    let found = vectors::read(&at).unwrap();
    assert_eq!(found.embeddings, ndarray::array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    assert_eq!((found.ids.concat(), found.cameras), ("abc".into(), vec![Some(1), None, Some(2)]));

    let refused = || root.note(&vectors::read(&at).unwrap_err().message);
    for rows in ["id,label\na,x\nb,x\n", "id,label\na,x\nb,x\na,y\n", "id,class\n"] {
        root.write("gallery.csv", rows);
        refused();
    }
    fs::remove_file(root.join("gallery.csv")).unwrap();
    refused();
    for (kind, shape) in [("<f4", "(3, 3)"), ("<i8", "(3, 2)"), ("<f4", "(6,)")] {
        fs::write(&at, npy(kind, shape, &values)).unwrap();
        refused();
    }
    let wide: Vec<u8> = [0.5f64, -1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(&at, npy("<f8", "(1, 2)", &wide)).unwrap();
    root.write("gallery.csv", "id,label\na,x\n");
    assert_eq!(vectors::read(&at).unwrap().embeddings.row(0).to_vec(), [0.5, -1.0]);
    // The product of this shape and 8 bytes is 2⁶⁴.
    fs::write(&at, npy("<f8", "(2305843009213693952, 1)", &[])).unwrap();
    refused();
    fs::write(&at, npy("<f4", "(1, 1)", &f32::NAN.to_le_bytes())).unwrap();
    refused();
    let other = vectors::read(Path::new("gallery.json")).unwrap_err().message;
    root.note(&other);
    insta::assert_snapshot!(root.told());
}

/// The files are those of pandas, polars, DuckDB and PyArrow; research/golden/golden_parquet.py made them and
/// describes them.
#[test]
fn galleries_of_embeddings_in_parquet() {
    let root = Transcript::new(Temp::new());
    for (name, ids) in [("pandas", "abc"), ("polars", "123"), ("duckdb", "abc"), ("pyarrow", "abc")] {
        let found = vectors::read(&golden("galleries").join(format!("{name}.parquet")))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let points: Vec<f32> = found.embeddings.iter().copied().collect();
        assert_eq!((found.embeddings.dim(), points), ((3, 2), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.5]), "{name}");
        assert_eq!(found.ids, ids.chars().map(String::from).collect::<Vec<_>>(), "{name}");
        assert_eq!(found.labels, ["7", "7", "8"], "{name}");
        let cameras = if name == "duckdb" { [None; 3] } else { [Some(1), None, Some(2)] };
        assert_eq!(found.cameras, cameras, "{name}");
    }
    let bad = "no-label other-column null-id twice float-id camera camera-text ragged null-value null-list \
               not-finite whole single listed-id no-rows struct";
    for name in words(bad) {
        let file = format!("bad-{name}.parquet");
        let error = vectors::read(&golden("galleries").join(&file)).expect_err(name);
        assert_eq!(error.exit, Exit::Usage);
        root.note(&error.message);
    }
    insta::assert_snapshot!(root.told());
}

/// Cut off or changed anywhere, a file is an error or another gallery, and never a panic.
#[test]
fn damaged_parquet_is_refused() {
    let root = Temp::new();
    let at = root.join("gallery.parquet");
    for name in ["pandas", "polars", "duckdb", "pyarrow"] {
        let whole = fs::read(golden("galleries").join(format!("{name}.parquet"))).unwrap();
        for keep in (0..whole.len()).step_by(13) {
            fs::write(&at, &whole[..keep]).unwrap();
            let error = vectors::read(&at).expect_err("cut off");
            assert!(error.message.contains("gallery.parquet"), "{error}");
        }
        for place in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&at, bytes).unwrap();
            let _ = vectors::read(&at);
        }
    }
}
