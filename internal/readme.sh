#!/usr/bin/env bash
# Runs the commands under the README's "Count the words of a book" as a reader would paste them, and compares the counts.
# It wants the binary built. Its server listens on ports of its own, so that it meets no other.
set -euo pipefail
free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 10000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  echo "found no free port" >&2
  return 1
}
http=$(free_port)
export WEIR_ADDR=127.0.0.1:$(free_port)
export WEIR_SERVER_GRPC_ADDR=$WEIR_ADDR WEIR_SERVER_HTTP_ADDR=127.0.0.1:$http
repo=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
cd "$dir"
ln -s "$repo/bin" bin
sed -n '/^## Count the words/,/^## [^C]/p' "$repo/README.md" | sed -n '/^```$/,/^```$/p' | grep -v '^```\|^go build' |
  sed "s#/tmp/#$dir/#g; s#localhost:7710#127.0.0.1:$http#g" >commands.sh
command -v curl >/dev/null || curl() { echo "there is no curl here: $*"; }
source ./commands.sh
jobs -r | grep -q 'weir server' || { echo "the server has died" >&2; exit 1; }
book=$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt
want=$(tr A-Z a-z <"$book" | grep -oE '[a-z0-9]+' | grep -cx light)
bin/weir get wordcount.counts light -o json | grep "\"n\":$want}" || { echo "light is $want times in the book" >&2; exit 1; }
bin/weir get hundred.counts light -o json | grep "\"n\":${want}00}" || { echo "light is ${want}00 times in a hundred books" >&2; exit 1; }
