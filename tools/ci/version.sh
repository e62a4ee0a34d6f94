#!/bin/sh
# Prints a hash of everything that audit is built from, in the checkout this script lies in. A cache of the program is
# named by it, so that another version of the action never runs the former one's program.
set -eu

cd "$(dirname "$0")/../.."
if command -v sha256sum >/dev/null; then hash() { sha256sum "$@"; }; else hash() { shasum -a 256 "$@"; }; fi
for part in Cargo.toml Cargo.lock src; do
    if [ ! -e "$part" ]; then
        echo "version.sh: expected $part in $PWD, found none; is this a checkout of audit?" >&2
        exit 1
    fi
done
source=$(find Cargo.toml Cargo.lock rust-toolchain.toml .cargo src cards crates suites xtask tools/ci -type f 2>/dev/null | LC_ALL=C sort |
    while IFS= read -r file; do hash "$file"; done | hash | cut -c 1-16)
echo "audit's source: $source"
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "source=$source" >> "$GITHUB_OUTPUT"; fi
