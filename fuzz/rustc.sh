#!/bin/sh
# Runs rustc for `cargo xtask fuzz`: our own crates tell libFuzzer which code an input reaches. Libraries are compiled as ever.
rustc=$1
shift
for crate in audit onnx_grad model gradient card suite image_list journal report; do
    case " $* " in
    *" --crate-name $crate --edition"*)
        exec "$rustc" "$@" --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module \
            -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
            -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
        ;;
    esac
done
exec "$rustc" "$@"
