#!/bin/sh
# Runs what `cargo xtask cuda pack` packed, on a machine with an NVIDIA GPU: sh DIR/run.sh [WORK]
#
# Unpacks into WORK (default: a new temporary folder), takes CUDA 13 and cuDNN 9 from the Python packages of PyTorch or
# `nvidia-*` where LD_LIBRARY_PATH doesn't have them, audits the bundled models on the CPU and on the GPU, and times steps.
# Ends with 1 if anything failed. Send what it prints: it is the record.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work/models" "$work/lib" || exit 1
python=$(command -v python3 || command -v python) || { echo "run.sh: expected python3 on the PATH, for unpacking"; exit 1; }

for packed in "$here"/*.xz; do
    name=$(basename "$packed" .xz)
    case $name in
        *.onnx) to=$work/models/$name ;;
        *.so) to=$work/lib/$name ;;
        *) to=$work/$name ;;
    esac
    "$python" -c 'import lzma, shutil, sys
with lzma.open(sys.argv[1]) as source, open(sys.argv[2], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)' "$packed" "$to" || { echo "run.sh: can't unpack $packed"; exit 1; }
done
chmod +x "$work/audit" "$work/bench_step"

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
failed=0

date -u
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "no nvidia-smi"
"$work/audit" --version
echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"

cd "$work" || exit 1
for model in plain hardened; do
    for how in cpu "cuda" "cuda --fast-math"; do
        report=$model-$(echo "$how" | tr -d ' -').json
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

echo "== seconds of a forward pass, of a step, and step / (2 x forward)"
for file in models/*.*.onnx; do
    for batch in 1 16 64 128; do
        for how in cuda fast-math; do
            times=$(./bench_step "$file" $batch 0 5 $how 2>&1) || { failed=1; echo "$file, $batch, $how FAILED: $times"; continue; }
            echo "$times" | awk -v f="$(basename "$file")" -v b=$batch -v h=$how \
                '{ printf "%-36s batch %4d  %-9s  %.5f  %.5f  %.2f  %.0f images/s\n", f, b, h, $1, $2, $2 / (2 * $1), b / $2 }'
        done
    done
done
exit $failed
