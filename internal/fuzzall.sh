#!/usr/bin/env bash
# Runs every fuzz target of the module for the time given (default 10s each), two at a time with a worker each. go test
# fuzzes one target of one package at a time, so they are found and shared out over here.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --one ]; then # budget, target, package
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	fuzz() { go test -run '^$' -fuzz "^$2\$" -fuzztime "$1" -fuzzminimizetime 10s -parallel 1 "$3" >"$out" 2>&1; }
	# On a busy machine go test may take the end of its time for a failure (golang/go#75804, mended in Go 1.27): one that
	# names no input is looked at a second time.
	if ! fuzz "$2" "$3" "$4"; then
		if grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out" && fuzz "$2" "$3" "$4"; then
			:
		else
			echo "--- FAIL $3 in $4"
			cat "$out"
			exit 255 # ends xargs
		fi
	fi
	echo "--- $3 in $4: $(grep -o 'execs: [0-9]*' "$out" | tail -n 1)"
	exit 0
fi

budget=${1:-10s}
targets=$(for file in $(grep -rl --include='*_test.go' '^func Fuzz' cmd clients dataflow internal node raftlog statequery | sort); do
	sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 ./$(dirname "$file")|p" "$file"
done)
count=$(wc -l <<<"$targets")
test "$count" -gt 1 # a search that finds nothing is a mistake
xargs -P 2 -L 1 "$0" --one "$budget" <<<"$targets"
echo "fuzzed $count targets for $budget each"
