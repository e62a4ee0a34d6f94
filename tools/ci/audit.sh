#!/bin/sh
# One audit of a CI run: every report that CI systems read, and the gate's exit code. action.yml and the GitLab example
# in docs/ci.md call it; what it takes comes in environment variables.
#
#   AUDIT_BIN       the program                                    [audit]
#   AUDIT_MODEL     the model, .onnx                               (required)
#   AUDIT_SUITE     built-in suite or .yaml file                   [robust]
#   AUDIT_DATA      folder with one folder of images per class     [generated images]
#   AUDIT_BASELINE  earlier report; left out where the file isn't there yet
#   AUDIT_BASELINE_REQUIRED  true: without that file the audit fails, with exit code 2
#   AUDIT_OUT       folder for the reports                         [audit-reports]
#   AUDIT_ARGS      further flags, one per line: --fail-under=ars=45
set -eu
export ORT_DISABLE_TELEMETRY="${ORT_DISABLE_TELEMETRY:-1}"

if [ -z "${AUDIT_MODEL:-}" ]; then
    echo "audit.sh: AUDIT_MODEL is empty; set it to the .onnx file to audit" >&2
    exit 2
fi
suite=${AUDIT_SUITE:-robust}
out=${AUDIT_OUT:-audit-reports}
mkdir -p "$out"
# Reports that are there already are of an earlier audit, or of a job that was killed: of another model or commit.
baseline=${AUDIT_BASELINE:-}
# An audit that made no report has left its baseline under this name.
if [ "$baseline" = "$out/report.json" ] && [ ! -e "$baseline" ] && [ -e "$out/baseline.json" ]; then
    mv "$out/baseline.json" "$baseline"
fi
if [ -n "$baseline" ] && [ "$baseline" -ef "$out/report.json" ]; then
    # In the same folder, because a report names its trials by a relative path. Without a new report it is not lost.
    baseline=$out/.baseline-$$.json
    trap 'if [ -e "$out/report.json" ]; then rm -f "$baseline"; else mv "$baseline" "$out/baseline.json"; fi' EXIT
    cp "$AUDIT_BASELINE" "$baseline"
fi
for ending in json html md junit.xml sarif json.journal; do rm -f "$out/report.$ending"; done
# Artifacts, comments and code scanning tell audits of one workflow apart by this name.
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    stem() { basename "$1" | sed 's/\.[A-Za-z]*$//' | tr -c 'A-Za-z0-9_.\n' - | cut -c 1-40; }
    sum=$(printf '%s\n' "$AUDIT_MODEL" "$suite" "${AUDIT_DATA:-}" | cksum | cut -d ' ' -f 1)
    echo "id=$(stem "$AUDIT_MODEL")-$(stem "$suite")-$sum" >> "$GITHUB_OUTPUT"
fi
set -- --suite "$suite" "$AUDIT_MODEL"
if [ -n "${AUDIT_DATA:-}" ]; then set -- "$@" --data "$AUDIT_DATA"; fi
# Says it on stderr and, as an annotation, on GitHub: say warning|error TEXT
say() {
    echo "audit.sh: $2" >&2
    if [ -n "${GITHUB_OUTPUT:-}" ]; then
        echo "::$1 title=audit::$(printf %s "$2" | tr '\r\n' '  ' | sed 's/%/%25/g')"
    fi
}
missing=
if [ -n "$baseline" ] && [ -f "$baseline" ]; then
    set -- "$@" --baseline "$baseline"
elif [ "${AUDIT_BASELINE_REQUIRED:-}" = true ]; then
    say error "a baseline is required, and there is none at '${AUDIT_BASELINE:-}': nothing was audited"
    if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "exit-code=2" >> "$GITHUB_OUTPUT"; fi
    exit 2
elif [ -n "$baseline" ]; then
    missing="no baseline at $baseline yet: commit $out/report.json there to be held to it"
    say warning "$missing"
fi
for ending in json html md junit.xml sarif; do set -- "$@" -o "$out/report.$ending"; done
if [ -n "${AUDIT_ARGS:-}" ]; then
    while IFS= read -r flag; do
        if [ -n "$flag" ]; then set -- "$@" "$flag"; fi
    done <<END
$AUDIT_ARGS
END
fi

code=0
"${AUDIT_BIN:-audit}" "$@" || code=$?
# Where GitHub gives a page for the step, the report goes there; a failed gate's too, and one that is not to be trusted.
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$out/report.md" ]; then
    cat "$out/report.md" >> "$GITHUB_STEP_SUMMARY"
    if [ -n "$missing" ]; then printf '\n**Not compared:** %s\n' "$missing" >> "$GITHUB_STEP_SUMMARY"; fi
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "exit-code=$code" >> "$GITHUB_OUTPUT"; fi
exit "$code"
