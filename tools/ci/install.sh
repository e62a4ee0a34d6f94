#!/bin/sh
# Builds audit from the checkout this script lies in and fetches ONNX Runtime, unless the cache brought both: whole, of
# this source and for this system.
#
#   AUDIT_HOME  folder for the program and the runtime  [target/ci]
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
home=${AUDIT_HOME:-$root/target/ci}
mkdir -p "$home"
# Later steps may run in another folder.
home=$(cd "$home" && pwd)
# Only action.yml's own step writes outputs.
version=$(unset GITHUB_OUTPUT && "$root/tools/ci/version.sh")
if [ "$(cat "$home/version" 2>/dev/null)" != "$version" ] || ! "$home/audit" --version >/dev/null; then
    # Written again when all files are there.
    rm -f "$home/version"
    (
        # The job's own settings of Cargo would put the program elsewhere, and a path of ONNX Runtime would keep setup from
        # fetching it.
        unset CARGO_BUILD_TARGET RUSTFLAGS ORT_DYLIB_PATH
        export CARGO_TARGET_DIR="$root/target"
        cd "$root" && cargo xtask setup && cargo build --release --locked
    )
    rm -rf "$home/onnxruntime"
    mkdir -p "$home/onnxruntime"
    cp -RL "$root/target/onnxruntime/." "$home/onnxruntime/"
    # A program that runs can't be written to, but it can be replaced.
    cp "$root/target/release/audit" "$home/audit.new"
    mv -f "$home/audit.new" "$home/audit"
    echo "$version" > "$home/version"
fi
library=$(find "$home/onnxruntime" -name 'libonnxruntime.*' | sort | head -n 1)
if [ -z "$library" ]; then
    echo "install.sh: no ONNX Runtime in $home/onnxruntime; remove $home, so that it is made anew" >&2
    exit 1
fi
"$home/audit" --version
if [ -n "${GITHUB_ENV:-}" ]; then
    { echo "AUDIT_BIN=$home/audit"; echo "ORT_DYLIB_PATH=$library"; } >> "$GITHUB_ENV"
fi
