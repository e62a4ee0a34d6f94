#!/bin/sh
# Puts the Markdown report into a comment on the pull request: one comment for each audit, which later runs replace.
# A comment that can't be written is a warning. The audit's verdict stands without it, and a pull request from a fork
# has no permission to comment.
#
#   GH_TOKEN    token for gh                        (required)
#   REPOSITORY  owner/name                          (required)
#   NUMBER      of the pull request                 (required)
#   AUDIT_ID    names the audit, from audit.sh      (required)
#   AUDIT_OUT   folder that holds report.md         [audit-reports]
set -eu

report=${AUDIT_OUT:-audit-reports}/report.md
if [ ! -f "$report" ]; then
    echo "comment.sh: the audit wrote no $report, so there is nothing to comment"
    exit 0
fi
marker="<!-- audit $AUDIT_ID -->"
body=$(mktemp)
trap 'rm -f "$body" "$body.error"' EXIT
# GitHub refuses comments of more than 65536 characters.
{ echo "$marker"; LC_ALL=C awk '{ size += length($0) + 1 } size > 60000 { print "\nThe report goes on: see the artifact of this run."; exit } { print }' "$report"; } > "$body"

give_up() {
    if grep -q 'Resource not accessible' "$body.error"; then
        why="this run may not comment (it needs pull-requests: write, which pull requests from forks don't get)"
    else
        why=$(head -n 1 "$body.error")
    fi
    echo "::warning title=audit::The report is not in a comment: $why. It is on the summary of this run."
    exit 0
}
comments=repos/$REPOSITORY/issues/$NUMBER/comments
# Anybody may write a comment that begins with the marker; a bot's is ours.
mine=".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$marker\"))) | .id"
found=$(gh api --paginate "$comments" --jq "$mine" 2> "$body.error") || give_up
found=$(echo "$found" | head -n 1)
if [ -n "$found" ]; then
    gh api --method PATCH "repos/$REPOSITORY/issues/comments/$found" -F "body=@$body" --silent 2> "$body.error" || give_up
else
    gh api --method POST "$comments" -F "body=@$body" --silent 2> "$body.error" || give_up
fi
