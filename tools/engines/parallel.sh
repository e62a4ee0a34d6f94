#!/bin/bash
# An audit in parts by GNU parallel, on this machine or on those of AUDIT_HOSTS (docs/engines.md). What is done is not done again, so
# that the same command goes on after a failure.
#   AUDIT_MODEL   the model, .onnx            AUDIT_PARTS  number of parts, about eight for each worker
#   AUDIT_IMAGES  flags that name the images  AUDIT_FLAGS  other flags of the audit
#   AUDIT_OUT     folder that all hosts see   AUDIT_JOBS   parts at the same time on each host [1]
#   AUDIT_HOSTS   hosts, as parallel's --sshlogin takes them [this machine]
set -euo pipefail
export ORT_DISABLE_TELEMETRY="${ORT_DISABLE_TELEMETRY:-1}"
: "${AUDIT_MODEL:?the model, .onnx}" "${AUDIT_PARTS:?number of parts}" "${AUDIT_OUT:?folder that all hosts see}"
gallery=$AUDIT_OUT/gallery.parquet
# Flags are words without blanks.
read -ra images <<<"${AUDIT_IMAGES:-}"; read -ra flags <<<"${AUDIT_FLAGS:-}"
mkdir -p "$AUDIT_OUT"
if [ "$AUDIT_MODEL" -ef "$AUDIT_OUT" ]; then
    echo "parallel.sh: AUDIT_OUT is the folder of the model, $AUDIT_MODEL. Name another AUDIT_OUT, such as $AUDIT_OUT/out" >&2
    exit 2
fi
# Parts of another model, or with other flags, would be merged as if they were of this run.
if command -v sha256sum >/dev/null; then hash() { sha256sum; }; else hash() { shasum -a 256; }; fi
# Only the model knows which other files its weights are in: this hash covers them.
weights=$(audit inspect "$AUDIT_MODEL" --json --quiet 2>/dev/null | grep '"sha256"' || true)
if [ -z "$weights" ]; then
    echo "parallel.sh: 'audit inspect $AUDIT_MODEL' gives no hash, so that a change of weights in other files is not noticed" >&2
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
if ! compgen -G "$AUDIT_OUT/part-*.json*" >/dev/null; then
    echo "$settings" >"$AUDIT_OUT/run.txt"
elif ! diff "$AUDIT_OUT/run.txt" - <<<"$settings" >&2; then
    echo "parallel.sh: $AUDIT_OUT has the parts of another run: < there, > here. Name another AUDIT_OUT, or remove the folder" >&2
    exit 2
fi
if [ ! -e "$gallery" ]; then audit embed "$AUDIT_MODEL" "${images[@]}" -o "$gallery"; fi
missing=()
for part in $(seq "$AUDIT_PARTS"); do
    if [ ! -e "$AUDIT_OUT/part-$part.json" ]; then missing+=("$part"); fi
done
if [ ${#missing[@]} -gt 0 ]; then
    hosts=()
    if [ -n "${AUDIT_HOSTS:-}" ]; then hosts=(--sshlogin "$AUDIT_HOSTS" --workdir "$PWD" --env PATH --env ORT_DYLIB_PATH --env ORT_DISABLE_TELEMETRY); fi
    # A part that failed is tried again on another host; what its journal holds is not run again.
    parallel --retries 3 --jobs "${AUDIT_JOBS:-1}" "${hosts[@]}" --quote \
        audit "$AUDIT_MODEL" "${images[@]}" "${flags[@]}" --gallery-cache "$gallery" --quiet --resume \
        --partition "hash:{}/$AUDIT_PARTS" -o "$AUDIT_OUT/part-{}.json" ::: "${missing[@]}"
fi
exec audit merge "$AUDIT_OUT"/part-*.json -o "$AUDIT_OUT/report.json"
