#!/usr/bin/env bash
# Runs the commands under the README's "Count the words of a book" as a reader would paste them, and compares a count.
# It wants the binary built, and the default ports free.
set -euo pipefail
for port in 7710 7711; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    echo "something listens on port $port; the README's commands need the default ports" >&2
    exit 1
  fi
done
repo=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
cd "$dir"
ln -s "$repo/bin" bin
sed -n '/^## Count the words/,/^## [^C]/p' "$repo/README.md" | sed -n '/^```$/,/^```$/p' | grep -v '^```\|^go build' | sed "s#/tmp/#$dir/#g" >commands.sh
command -v curl >/dev/null || curl() { echo "there is no curl here: $*"; }
source ./commands.sh
book=$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt
want=$(tr A-Z a-z <"$book" | grep -oE '[a-z0-9]+' | grep -cx light)
bin/weir get wordcount.counts light -o json | grep "\"n\":$want}" || { echo "light is $want times in the book" >&2; exit 1; }
