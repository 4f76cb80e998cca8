//! The header is what the code says. `HOLDFAST_WRITE=1` writes it anew.

use std::{env, fs, path::Path};

#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(folder.join("src/abi.rs"))
        .generate()
        .expect("the functions for C");
    let mut header = Vec::new();
    bindings.write(&mut header);
    let path = folder.join("../../clients/c/include/holdfast.h");
    if env::var_os("HOLDFAST_WRITE").is_some() {
        fs::write(&path, &header).expect("a header");
    }
    let is = fs::read_to_string(&path).expect("the header");
    assert!(
        is.as_bytes() == header,
        "clients/c/include/holdfast.h is not what src/abi.rs says: run with HOLDFAST_WRITE=1"
    );
}
