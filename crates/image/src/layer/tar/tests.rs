//! What other writers make, and what nobody should.

use std::io::Read as _;

use proptest::prelude::*;

use super::*;

fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o4755);
    header.set_uid(7);
    header.set_gid(8);
    header.set_mtime(9);
    header
}

fn all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while let Some(entry) = reader.next()? {
        let mut data = Vec::new();
        let mut chunk = [0; 100];
        loop {
            match reader.data(&mut chunk)? {
                0 => break,
                n => data.extend_from_slice(&chunk[..n]),
            }
        }
        found.push((entry, data));
    }
    Ok(found)
}

#[test]
fn ordinary_entries() {
    let mut builder = tar::Builder::new(Vec::new());
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    let mut plain = header(tar::EntryType::Regular, 5);
    builder
        .append_data(&mut plain, "a/b", &b"hello"[..])
        .expect("append");
    let mut gnu = tar::Header::new_gnu();
    gnu.set_size(600);
    gnu.set_mode(0o644);
    builder
        .append_data(&mut gnu, &long, &[7; 600][..])
        .expect("append");
    let mut link = header(tar::EntryType::Symlink, 0);
    builder.append_link(&mut link, "l", "../x").expect("append");
    builder
        .append_pax_extensions([
            ("mtime", &b"12.25"[..]),
            ("SCHILY.xattr.user.a", b"1\n2"),
            ("uid", b"4000000"),
            ("path", b"b\xff"),
        ])
        .expect("append");
    let mut named = header(tar::EntryType::Regular, 0);
    builder
        .append_data(&mut named, "ignored", &b""[..])
        .expect("append");
    let mut device = header(tar::EntryType::Char, 0);
    device.set_device_major(1).expect("major");
    device.set_device_minor(3).expect("minor");
    builder
        .append_data(&mut device, "null", &b""[..])
        .expect("append");
    let found = all(&builder.into_inner().expect("a tar")).expect("read");
    let names: Vec<&[u8]> = found
        .iter()
        .map(|(entry, _)| entry.path.as_slice())
        .collect();
    assert_eq!(names, [b"a/b", long.as_bytes(), b"l", b"b\xff", b"null"]);
    let (first, data) = &found[0];
    assert_eq!(
        (
            first.mode,
            first.uid,
            first.gid,
            first.mtime,
            data.as_slice()
        ),
        (0o4755, 7, 8, (9, 0), &b"hello"[..])
    );
    assert_eq!(found[1].1, [7; 600]);
    assert_eq!(
        (found[2].0.kind, found[2].0.link.as_slice()),
        (Kind::Symlink, &b"../x"[..])
    );
    let extended = &found[3].0;
    assert_eq!(
        (extended.uid, extended.mtime),
        (4_000_000, (12, 250_000_000))
    );
    assert_eq!(extended.xattrs, [(b"user.a".to_vec(), b"1\n2".to_vec())]);
    assert_eq!(
        (found[4].0.kind, found[4].0.device),
        (Kind::CharDevice, (1, 3))
    );
}

/// GNU tar writes each of its ways to say where the holes are.
#[test]
fn sparse_files_of_all_dialects() {
    use std::os::unix::fs::FileExt as _;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = std::fs::File::create(folder.path().join("holes")).expect("create");
    file.set_len(10 << 20).expect("length");
    let mut expected = vec![0; 10 << 20];
    // More runs than the old way has room for in one header.
    for run in 0..40_usize {
        let at = run * 200_000 + 4096;
        file.write_all_at(b"data", at as u64).expect("write");
        expected[at..at + 4].copy_from_slice(b"data");
    }
    for dialect in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let made = std::process::Command::new("tar")
            .arg("--sparse")
            .args(dialect)
            .arg("-C")
            .arg(folder.path())
            .args(["-cf", "-", "holes"])
            .output()
            .expect("GNU tar");
        assert!(made.status.success());
        let found = all(&made.stdout).expect("read");
        let [(entry, data)] = found.as_slice() else {
            panic!("{dialect:?}: {} entries", found.len());
        };
        assert_eq!(
            (entry.path.as_slice(), entry.size),
            (&b"holes"[..], 10 << 20)
        );
        let mut whole = vec![0; 10 << 20];
        let mut rest = data.as_slice();
        for extent in entry.sparse.as_ref().expect("extents") {
            let at = extent.offset as usize;
            let (run, others) = rest.split_at(extent.length as usize);
            whole[at..at + run.len()].copy_from_slice(run);
            rest = others;
        }
        assert!(whole == expected && data.len() < 1 << 20, "{dialect:?}");
    }
}

#[test]
fn an_archive_that_ends_early_is_an_error() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut file = header(tar::EntryType::Regular, 1000);
    builder
        .append_data(&mut file, "a", &[1; 1000][..])
        .expect("append");
    let whole = builder.into_inner().expect("a tar");
    for length in [100, 512, 800, 1511, 1530] {
        assert!(all(&whole[..length]).is_err(), "{length}");
    }
    // Nor is what is missing made up for by there being no padding.
    let mut builder = tar::Builder::new(Vec::new());
    let mut file = header(tar::EntryType::Regular, 1024);
    builder
        .append_data(&mut file, "a", &[1; 1024][..])
        .expect("append");
    let full = builder.into_inner().expect("a tar");
    for length in [512, 800, 1024, 1535] {
        assert!(all(&full[..length]).is_err(), "{length}");
    }
    // The end's zero blocks may be missing.
    for length in [1536, 2048, 2560] {
        assert_eq!(all(&whole[..length]).expect("read").len(), 1);
    }
}

#[test]
fn hostile_headers_are_errors() {
    let with = |change: &dyn Fn(&mut tar::Header)| {
        let mut header = header(tar::EntryType::Regular, 0);
        header.set_path("x").expect("a path");
        change(&mut header);
        header.set_cksum();
        all(header.as_bytes())
    };
    assert!(with(&|_| {}).is_ok());
    let mut damaged = header(tar::EntryType::Regular, 0);
    damaged.set_path("x").expect("a path");
    damaged.set_cksum();
    damaged.as_mut_bytes()[0] = b'y';
    assert!(matches!(all(damaged.as_bytes()), Err(TarError::Checksum)));
    assert!(with(&|h| h.as_mut_bytes()[124] = b'x').is_err());
    assert!(with(&|h| h.as_mut_bytes()[124..136].fill(0xff)).is_err());
    assert!(with(&|h| h.as_mut_bytes()[156] = b'M').is_err());
    // Extended headers and long names without bounds.
    for kind in [b'x', b'g', b'L', b'K'] {
        assert!(matches!(
            with(&|h| {
                h.as_mut_bytes()[156] = kind;
                h.set_size(8 << 30);
            }),
            Err(TarError::TooLong { .. })
        ));
    }
}

/// A sparse file in PAX's first way, whose data are `stored` bytes.
fn sparse(map: &str, size: &str, stored: usize) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_pax_extensions([
            ("GNU.sparse.map", map.as_bytes()),
            ("GNU.sparse.size", size.as_bytes()),
        ])
        .expect("append");
    let mut file = header(tar::EntryType::Regular, stored as u64);
    builder
        .append_data(&mut file, "s", &vec![1; stored][..])
        .expect("append");
    all(&builder.into_inner().expect("a tar"))
}

#[test]
fn maps_that_do_not_fit_their_file_are_errors() {
    assert!(sparse("0,4,100,6", "200", 10).is_ok());
    assert!(sparse("", "200", 0).is_ok());
    for (map, size, stored) in [
        ("0,4,100,6", "200", 9),
        ("0,4,100,6", "200", 11),
        ("0,4,100,6", "105", 10),
        ("100,6,0,4", "200", 10),
        ("0,4,3,6", "200", 10),
        ("0,4,100", "200", 4),
        ("18446744073709551615,4", "200", 4),
        ("0,x", "200", 4),
        ("0,4", "x", 4),
    ] {
        assert!(sparse(map, size, stored).is_err(), "{map} of {size}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(
        start in proptest::collection::vec(any::<u8>(), 0..1536),
        kind in proptest::sample::select(b"01234567LKxgSV\0".to_vec()),
    ) {
        let mut block = tar::Header::new_gnu();
        for (to, from) in block.as_mut_bytes().iter_mut().zip(&start) {
            *to = *from;
        }
        block.as_mut_bytes()[124..136].copy_from_slice(b"00000000777\0");
        block.as_mut_bytes()[156] = kind;
        block.set_cksum();
        let rest = start.get(512..).unwrap_or_default();
        drop(all(&[block.as_bytes().as_slice(), rest].concat()));
        let mut text = Vec::new();
        start.as_slice().read_to_end(&mut text).expect("bytes");
        drop(Extended::default().read(&text));
    }
}
