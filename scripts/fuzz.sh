#!/usr/bin/env bash
# Fuzzes every target of internal/wire for FUZZTIME each (default 20s, and no less than a minute in all).
set -euo pipefail
cd "$(dirname "$0")/.."

package=./internal/wire
targets=$(go test -list '^Fuzz' "$package" | grep '^Fuzz') || {
	echo "fuzz: $package does not build or has no target" >&2
	exit 1
}
count=$(wc -w <<<"$targets")
seconds=$((60 / count))
time=${FUZZTIME:-$((seconds > 20 ? seconds : 20))s}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
fuzz() {
	echo "+ go test -run ^\$ -fuzz ^$1\$ -fuzztime $time $package"
	go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" "$package" 2>&1 | tee "$log"
}

for target in $targets; do
	fuzz "$target" && continue
	# Go now and then reports the end of -fuzztime itself as a failure (golang/go#75804). It names no input then.
	if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		echo "fuzz: $target failed with nothing but its own deadline; once more"
		fuzz "$target"
	else
		exit 1
	fi
done
