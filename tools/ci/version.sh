#!/bin/sh
# Prints the system that audit is built for, and a hash of everything that it is built from, in the checkout this script
# lies in. A cache of the program is named by both, so that another version of the action never runs the former one's
# program, and no system another one's.
set -eu

cd "$(dirname "$0")/../.."
if command -v sha256sum >/dev/null; then hash() { sha256sum "$@"; }; else hash() { shasum -a 256 "$@"; }; fi
for part in Cargo.toml Cargo.lock src; do
    if [ ! -e "$part" ]; then
        echo "version.sh: expected $part in $PWD, found none; is this a checkout of audit?" >&2
        exit 1
    fi
done
# A program doesn't run with an older C library than the one it was linked with. musl's ldd prints to stderr.
libc=$(if command -v ldd >/dev/null; then ldd --version 2>&1 | head -n 1; fi)
system="$(uname -sm), ${libc:-no ldd}"
source=$(find Cargo.toml Cargo.lock rust-toolchain.toml .cargo src cards crates models suites xtask tools/ci -type f 2>/dev/null | LC_ALL=C sort |
    while IFS= read -r file; do hash "$file"; done | hash | cut -c 1-16)
echo "system: $system"
echo "audit's source: $source"
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    { echo "source=$source"; echo "system=$(echo "$system" | hash | cut -c 1-8)"; } >> "$GITHUB_OUTPUT"
fi
