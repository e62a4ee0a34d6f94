#!/bin/sh
# One audit of a CI run: every report that CI systems read, and the gate's exit code. action.yml and the GitLab example
# in docs/ci.md call it; what it takes comes in environment variables.
#
#   AUDIT_BIN       the program                                    [audit]
#   AUDIT_MODEL     the model, .onnx                               (required)
#   AUDIT_SUITE     built-in suite or .yaml file                   [robust]
#   AUDIT_DATA      folder with one folder of images per class     [generated images]
#   AUDIT_BASELINE  earlier report; left out where the file isn't there yet
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
# What a job that was killed left behind is of another commit, as likely as not.
rm -f "$out/report.json.journal" "$out/report.md" "$out/report.sarif"
# Artifacts, comments and code scanning tell audits of one workflow apart by this name.
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    stem() { basename "$1" | sed 's/\.[A-Za-z]*$//' | tr -c 'A-Za-z0-9_.\n' - | cut -c 1-40; }
    sum=$(printf '%s\n' "$AUDIT_MODEL" "$suite" "${AUDIT_DATA:-}" | cksum | cut -d ' ' -f 1)
    echo "id=$(stem "$AUDIT_MODEL")-$(stem "$suite")-$sum" >> "$GITHUB_OUTPUT"
fi
set -- --suite "$suite" "$AUDIT_MODEL"
if [ -n "${AUDIT_DATA:-}" ]; then set -- "$@" --data "$AUDIT_DATA"; fi
if [ -n "${AUDIT_BASELINE:-}" ]; then
    if [ -f "$AUDIT_BASELINE" ]; then
        set -- "$@" --baseline "$AUDIT_BASELINE"
    else
        echo "audit.sh: no baseline at $AUDIT_BASELINE yet: commit $out/report.json there to be held to it" >&2
    fi
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
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "exit-code=$code" >> "$GITHUB_OUTPUT"; fi
exit "$code"
