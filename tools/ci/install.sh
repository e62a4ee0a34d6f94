#!/bin/sh
# Builds audit from the checkout this script lies in and fetches ONNX Runtime, unless the cache brought both.
#
#   AUDIT_HOME  folder for the program and the runtime  [target/ci]
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
home=${AUDIT_HOME:-$root/target/ci}
if [ ! -x "$home/audit" ]; then
    (cd "$root" && cargo xtask setup && cargo build --release --locked)
    mkdir -p "$home/onnxruntime"
    cp "$root/target/release/audit" "$home/audit"
    cp -RL "$root/target/onnxruntime/." "$home/onnxruntime/"
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
