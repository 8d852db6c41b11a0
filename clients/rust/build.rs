//! Makes the stubs of proto/baton/v1 while the crate is built. Needs protoc.
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files = ["errors", "generation", "inference"].map(|name| proto.join(format!("baton/v1/{name}.proto")));
    tonic_prost_build::configure().build_server(false).compile_protos(&files, &[proto])?;
    Ok(())
}
