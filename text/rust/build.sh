#!/bin/sh
# Builds the crate into LIBRARY. Its dependencies take three CPU minutes and change with Cargo.lock and the compiler alone, so cargo's folder
# lies in the user's cache and serves every clone: the sources are copied there, those that changed, and a lock lets one build at a time.
#   build.sh CARGO RUSTC LIBRARY
set -eu
cargo=$1 library=$3
export RUSTC="$2"
source=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
key=$({ cat "$source/Cargo.lock" && "$RUSTC" --version && "$cargo" --version; } | sha256sum | cut -c1-16)
folder=${cache:-$(dirname "$library")}/baton/rust-$key
mkdir -p "$folder/crate/src" "$(dirname "$library")"
exec 9>"$folder/lock"
flock 9
cd "$source"
for file in Cargo.toml Cargo.lock src/*.rs; do
  cmp -s "$file" "$folder/crate/$file" || cp "$file" "$folder/crate/$file"
done
for file in "$folder"/crate/src/*.rs; do
  [ -e "src/$(basename "$file")" ] || rm "$file"
done
cd "$folder/crate"
CARGO_TARGET_DIR=$folder/target "$cargo" build --release --locked --quiet --lib
cp "$folder/target/release/libbaton_text.a" "$library.new"
mv "$library.new" "$library"
