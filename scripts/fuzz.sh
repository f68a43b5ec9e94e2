#!/usr/bin/env bash
# Fuzzes every target of the packages below for FUZZTIME each (default 20s): what reads the wire, and the in-process server.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(./internal/wire ./internal/broker)
time=${FUZZTIME:-20s}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
fuzz() { # package target
	echo "+ go test -run ^\$ -fuzz ^$2\$ -fuzztime $time $1"
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" 2>&1 | tee "$log"
}

for package in "${packages[@]}"; do
	targets=$(go test -list '^Fuzz' "$package" | grep '^Fuzz') || {
		echo "fuzz: $package does not build or has no target" >&2
		exit 1
	}
	for target in $targets; do
		fuzz "$package" "$target" && continue
		# Go now and then reports the end of -fuzztime itself as a failure (golang/go#75804). It names no input then.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			echo "fuzz: $target failed with nothing but its own deadline; once more"
			fuzz "$package" "$target"
		else
			exit 1
		fi
	done
done
