#!/bin/bash
#SBATCH --requeue --open-mode=append
# An audit in parts on Slurm: embeddings once, a job array of the parts, and a merge when all parts are done (docs/engines.md).
#   AUDIT_MODEL   the model, .onnx            AUDIT_PARTS  number of parts, about eight for each node
#   AUDIT_IMAGES  flags that name the images  AUDIT_FLAGS  other flags of the audit
#   AUDIT_OUT     folder that all nodes see   AUDIT_SBATCH flags for sbatch: --cpus-per-task=4
# bash slurm.sh             submits everything
# bash slurm.sh 3,7-9       submits these parts again:  bash slurm.sh "$(audit merge --missing OUT)"
set -euo pipefail
export ORT_DISABLE_TELEMETRY="${ORT_DISABLE_TELEMETRY:-1}"
: "${AUDIT_MODEL:?the model, .onnx}" "${AUDIT_PARTS:?number of parts}" "${AUDIT_OUT:?folder that all nodes see}"
gallery=$AUDIT_OUT/gallery.parquet
# Flags are words without blanks.
read -ra images <<<"${AUDIT_IMAGES:-}"; read -ra flags <<<"${AUDIT_FLAGS:-}"; read -ra slurm <<<"${AUDIT_SBATCH:-}"
case ${AUDIT_STAGE:-submit} in
submit)
    mkdir -p "$AUDIT_OUT"
    if [ "$AUDIT_MODEL" -ef "$AUDIT_OUT" ]; then
        echo "slurm.sh: AUDIT_OUT is the folder of the model, $AUDIT_MODEL. Name another AUDIT_OUT, such as $AUDIT_OUT/out" >&2
        exit 2
    fi
    # Parts of another model, or with other flags, would be merged as if they were of this run.
    if command -v sha256sum >/dev/null; then hash() { sha256sum; }; else hash() { shasum -a 256; }; fi
    # Only the model knows which other files its weights are in: this hash covers them.
    weights=$(audit inspect "$AUDIT_MODEL" --json --quiet 2>/dev/null | grep '"sha256"' || true)
    if [ -z "$weights" ]; then
        echo "slurm.sh: 'audit inspect $AUDIT_MODEL' gives no hash, so that a change of weights in other files is not noticed" >&2
    fi
    beside=$AUDIT_MODEL
    if [ ! -d "$beside" ]; then beside=$(dirname "$beside"); fi
    above=$beside
    if [ "$(basename "$beside")" = onnx ]; then above=$beside/..; fi
    settings=$(
        audit --version | sed -n 1p
        echo "model and weights: $weights"
        # The model may be a folder, also one that holds AUDIT_OUT, or have its card and its preprocessing beside it.
        find -L "$AUDIT_MODEL" "${AUDIT_MODEL%.onnx}.yaml" \
            {"$beside","$above"}/{processor_config,preprocessor_config,open_clip_config,config}.json \
            -samefile "$AUDIT_OUT" -prune -o -type f -print 2>/dev/null | LC_ALL=C sort |
            while IFS= read -r file; do hash <"$file"; done
        printf '%s\n' "images: ${AUDIT_IMAGES:-}" "flags: ${AUDIT_FLAGS:-}" "parts: $AUDIT_PARTS"
    )
    # Jobs that are queued have written nothing yet, so the first submission's settings count.
    if ! compgen -G "$AUDIT_OUT/part-*.json*" >/dev/null; then
        (set -C; echo "$settings" >"$AUDIT_OUT/run.txt") 2>/dev/null || true
        if [ ! -e "$AUDIT_OUT/run.txt" ]; then
            echo "slurm.sh: can't write $AUDIT_OUT/run.txt: make the folder writable, or name another AUDIT_OUT" >&2
            exit 2
        fi
    fi
    if ! diff "$AUDIT_OUT/run.txt" - <<<"$settings" >&2; then
        echo "slurm.sh: $AUDIT_OUT has the parts of another run: < there, > here. Name another AUDIT_OUT, or cancel the jobs of that" \
            "run (scancel) and remove the folder; if no part has begun, $AUDIT_OUT/run.txt is enough" >&2
        exit 2
    fi
    job() {
        AUDIT_STAGE=$1 sbatch --parsable --export=ALL --job-name="audit-$1" --output="$AUDIT_OUT/$1-%a.log" "${slurm[@]}" "${@:2}" "$0"
    }
    after=()
    if [ ! -e "$gallery" ]; then after=(--dependency="afterok:$(job embed)" --kill-on-invalid-dep=yes); fi
    parts=$(job part "${after[@]}" --array="${1:-1-$AUDIT_PARTS}")
    merge=$(job merge --dependency="afterok:$parts" --kill-on-invalid-dep=yes)
    echo "parts: job $parts; report: job $merge, in $AUDIT_OUT/report.json"
    ;;
embed) exec audit embed "$AUDIT_MODEL" "${images[@]}" -o "$gallery" ;;
part)
    report=$AUDIT_OUT/part-$SLURM_ARRAY_TASK_ID.json
    if [ -e "$report" ]; then exit 0; fi
    exec audit "$AUDIT_MODEL" "${images[@]}" "${flags[@]}" --gallery-cache "$gallery" --partition auto --resume -o "$report"
    ;;
merge) exec audit merge "$AUDIT_OUT"/part-*.json -o "$AUDIT_OUT/report.json" ;;
esac
