#!/bin/sh
# Runs what `cargo research cuda` packed, on a machine with an NVIDIA GPU: sh DIR/run.sh [WORK [PART ...]]
#
# Unpacks into WORK (default: a new temporary folder), and takes CUDA 13 and cuDNN 9 from the Python packages
# of PyTorch or `nvidia-*` if LD_LIBRARY_PATH doesn't have them. Parts, all by default: `audits` of the
# bundled models on the CPU and on the GPU; `steps` timed; the `suite` beside the protocol in PyTorch. PyTorch
# is timed if Python has it with CUDA. `unpack` alone only unpacks: if DIR is too large to be carried at once,
# run it for one part of its files after another. A quarter of an hour on a GPU of 2022, by estimate. Ends
# with 1 if anything failed. Send its output: it is the record.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
[ $# -gt 0 ] && shift
parts=" ${*:-audits steps suite} "
mkdir -p "$work/models" "$work/lib" "$work/research/tools" || exit 1
python=$(command -v python3 || command -v python) || { echo "run.sh: expected python3 on the PATH, for unpacking"; exit 1; }

for packed in "$here"/*.xz; do
    [ -f "$packed" ] || continue
    name=$(basename "$packed" .xz)
    case $name in
        *.onnx) to=$work/models/$name ;;
        *.so) to=$work/lib/$name ;;
        *.py) to=$work/research/tools/$name ;;
        *) to=$work/$name ;;
    esac
    [ -f "$to" ] && [ ! "$packed" -nt "$to" ] && continue
    "$python" -c 'import lzma, shutil, sys
with lzma.open(sys.argv[1]) as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)' "$packed" "$to.part" && mv "$to.part" "$to" || { echo "run.sh: can't unpack $packed"; exit 1; }
done
[ "$parts" = " unpack " ] && exit 0
for needed in audit measure lib/libonnxruntime.so lib/libonnxruntime_providers_cuda.so; do
    [ -f "$work/$needed" ] || { echo "run.sh: $needed is neither in $here nor unpacked in $work"; exit 1; }
done
chmod +x "$work/audit" "$work/measure"

# Folders of Python packages with libraries of CUDA; nothing is imported, so that torch need not start.
found=$("$python" - <<'PY'
import glob, site, sys
places = list(dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()]))
folders = [f for p in places if p for pattern in ("nvidia/*/lib", "torch/lib") for f in sorted(glob.glob(f"{p}/{pattern}"))]
print(":".join(folders))
PY
)
LD_LIBRARY_PATH="$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
ORT_DYLIB_PATH=$work/lib/libonnxruntime.so
export LD_LIBRARY_PATH ORT_DYLIB_PATH
export ORT_DISABLE_TELEMETRY="${ORT_DISABLE_TELEMETRY:-1}"
failed=0

date -u
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "no nvidia-smi"
"$work/audit" --version
echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"

torch=
if "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    torch=yes
    "$python" -c 'import torch; print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())'
else
    echo "PyTorch with CUDA is not there: nothing to compare times with"
fi
wanted() { case $parts in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
cores=$(nproc)
seconds=${SECONDS_EACH:-3}
batches=${BATCHES:-16 64 128}
cd "$work" || exit 1

audits() {
    for model in plain hardened; do
        for how in cpu "cuda" "cuda --fast-math" "cuda --attack-precision fp16"; do
            report=$model-$(echo "$how" | tr -d ' -').json
            # A run that was killed leaves a journal, beside which another one doesn't begin.
            rm -f "$report.journal"
            start=$(date +%s)
            if ./audit "models/$model.onnx" --suite ars -q --ep $how -o "$report" >"$report.txt" 2>&1; then
                echo "== $model on $how: $(($(date +%s) - start)) s"
                grep -E '^ *(ARS|ERS)' "$report.txt"
            else
                echo "== $model on $how FAILED:"; cat "$report.txt"; failed=1
            fi
        done
        if [ -f "$model-cpu.json" ] && [ -f "$model-cuda.json" ]; then
            ./audit compare --anyway "$model-cpu.json" "$model-cuda.json"
        fi
    done
    for batch in 64 128 256 512 1024; do
        echo "== hardened on cuda, $batch images at a time"
        rm -f batch.json.journal
        ./audit models/hardened.onnx --suite ars -q --ep cuda --batch $batch -o batch.json >batch.txt 2>&1 || failed=1
        tail -1 batch.txt
    done
}

# Beside PyTorch's best at batch 64, of both layouts. One process for each model, and one for PyTorch: CUDA
# takes seconds to start.
steps() {
    echo "== seconds of a forward pass in float32, of a step, step / (2 x forward); PyTorch's forward, step, and ours / PyTorch's"
    providers="cuda cuda+fast-math cuda+fp16"
    names=$(for file in models/*.*.onnx; do basename "$file" .onnx; done)
    : >theirs.txt
    if [ -n "$torch" ]; then
        "$python" research/tools/bench_step.py time "$(echo $names | tr ' ' ,)" 64 "$cores" "$seconds" cuda,cuda+fast-math >theirs.txt 2>theirs.err ||
            { failed=1; echo "PyTorch FAILED: $(tail -1 theirs.err)"; }
    fi
    at=0
    for name in $names; do
        ./measure bench model "models/$name.onnx" "$(echo $batches | tr ' ' ,)" 0 "$seconds" "$(echo $providers | tr ' ' ,)" >ours.txt 2>ours.err ||
            { failed=1; echo "$name FAILED: $(cat ours.err)"; }
        awk -v n="$name" -v at=$at -v batches="$batches" -v providers="$providers" '
            BEGIN { many = split(batches, batch, " "); split(providers, how, " ") }
            FILENAME == "theirs.txt" { forward[FNR - at] = $1; best[FNR - at] = $2 < $3 ? $2 : $3; next }
            { b = batch[(FNR - 1) % many + 1]; of = int((FNR - 1) / many) + 1
              printf "%-34s batch %4d  %-15s %.5f  %.5f  %.2f  %5.0f images/s", n, b, how[of], $1, $2, $2 / (2 * $1), b / $2
              if (b == 64 && of <= 2 && of in best) printf "   %.5f  %.5f  %.2f", forward[of], best[of], $2 / best[of]
              print "" }' theirs.txt ours.txt
        at=$((at + 2))
    done
}

suite() {
    [ -n "$torch" ] || return 0
    reference=
    [ -f research/tools/reference_audit.py ] && reference=research/tools/reference_audit.py
    for how in cuda cuda+fast-math; do
        echo "== the ARS suite on $how"
        "$python" research/tools/bench_suite.py ./audit bench "$cores" 2 $how $reference || failed=1
    done
}

for part in audits steps suite; do
    if wanted $part; then $part; fi
done
exit $failed
