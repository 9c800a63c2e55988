#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other, for the time given (default 10s each). go test fuzzes one
# target of one package at a time, so they are found and looped over here.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:-10s}
count=0
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | sort); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "--- $target in $(dirname "$file")"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$budget" "./$(dirname "$file")"
		count=$((count + 1))
	done
done
echo "fuzzed $count targets for $budget each"
test "$count" -gt 0
