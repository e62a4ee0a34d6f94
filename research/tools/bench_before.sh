#!/usr/bin/env bash
# CPU time of this tree's last commit beside an earlier one: `bash research/tools/bench_before.sh COMMIT FOLDER`. Builds both in FOLDER in
# release mode, from nothing and after a change of an attack, and audits models/hardened.onnx with both by turns. Prints the tables of
# docs/performance.md. ORT_DYLIB_PATH must name ONNX Runtime. The user's CPU seconds count, which other work on the machine changes little.
# `bash research/tools/bench_before.sh COMMIT FOLDER audits` takes programs that are there already (FOLDER/target-COMMIT/release/audit).
set -euo pipefail

case $#${3:-} in 2|3audits) [ -n "${ORT_DYLIB_PATH:-}" ] ;; *) false ;; esac || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
root=$(git rev-parse --show-toplevel)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
before=$(git rev-parse --short "$1") after=$(git rev-parse --short HEAD)

# User seconds of a command, whose output goes to FOLDER/log.
seconds() { ( TIMEFORMAT=%U; { time "$@" >>"$folder/log" 2>&1; } 2>&1 ); }

build() { # commit
    ( cd "$folder/$1" && seconds cargo build --release --locked --bin audit --target-dir "$folder/target-$1" )
}

builds() {
    printf '| commit | release build from nothing | after a change of an attack |\n|---|--:|--:|\n'
    for commit in "$before" "$after"; do
        [ -d "$folder/$commit" ] || git -C "$root" worktree add --detach "$folder/$commit" "$commit" >>"$folder/log" 2>&1
        rm -rf "$folder/target-$commit"
        cold=$(build "$commit")
        find "$folder/$commit/src" "$folder/$commit/crates/audit-attack" -name es.rs -exec touch {} + 2>/dev/null || true
        printf '| %s | %s s | %s s |\n' "$commit" "$cold" "$(build "$commit")"
    done
}
[ $# = 3 ] || builds

printf '\n| suite | %s | %s |\n|---|--:|--:|\n' "$before" "$after"
for suite in 'full --max-queries 400' 'ars-strict --max-queries 200'; do
    declare -A took=()
    for _ in 1 2 3 4 5 6; do
        for commit in "$before" "$after"; do
            audit=$folder/target-$commit/release/audit
            # Programs before the strong search have no flag for it, and don't cache the result of the check
            # at load.
            case $("$audit" --help) in *--strong-sample*) own='--strong-sample off --no-cache' ;; *) own= ;; esac
            # A run that was killed leaves a journal, beside which another one doesn't begin.
            rm -f "$folder/$commit.json.journal"
            took[$commit]+=" $(seconds "$audit" --suite $suite $own --threads 2 -q "$root/models/hardened.onnx" -o "$folder/$commit.json")"
        done
    done
    range() { tr ' ' '\n' <<<"${took[$1]}" | sed '/^$/d' | sort -n | sed -n '1p;$p' | paste -sd' ' | sed 's/ / to /'; }
    printf '| `%s` | %s s | %s s |\n' "$suite" "$(range "$before")" "$(range "$after")"
done
