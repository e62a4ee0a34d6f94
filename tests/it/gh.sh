#!/bin/sh
cd 'DIR'
mkdir -p comments
for word in "$@"; do last=$word; case $word in body=@*) body=${word#body=@};; esac; done
case "$*" in
    *"--paginate repos/o/r/issues/7/comments"*)
        start=$(echo "$last" | sed 's/.*startswith("\(.*\)"))).*/\1/')
        for file in comments/*.bot; do
            if [ -f "$file" ] && head -n 1 "$file" | grep -qxF "$start"; then basename "$file" .bot; fi
        done;;
    *"--method"*)
        if [ -f readonly ]; then
            echo 'gh: Resource not accessible by integration (HTTP 403)' >&2; exit 1
        fi
        case "$*" in
            *PATCH\ repos/o/r/issues/comments/*)
                id=$(echo "$*" | sed 's/.*comments\/\([0-9]*\).*/\1/'); cp "$body" "comments/$id.bot";;
            *POST\ repos/o/r/issues/7/comments*)
                id=$(($(ls comments | wc -l) + 1)); cp "$body" "comments/$id.bot";;
        esac;;
    *) echo "unexpected: gh $*" >&2; exit 1;;
esac
