#!/usr/bin/env bash
# Installs Mosquitto where it is missing, for the live tests and the demo, and shows the commands. They start servers of their own on
# free ports, so the system's service is neither needed nor started.
set -euo pipefail

find_mosquitto() {
	PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v mosquitto
}

fail() {
	echo "need-mosquitto: $*" >&2
	exit 1
}

# Shows a command and runs it as root.
as_root() {
	echo "+ ${sudo[*]}${sudo[*]:+ }$*"
	"${sudo[@]}" "$@" </dev/null
}

if find_mosquitto >/dev/null; then
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	fail "mosquitto is not installed, and there is no apt-get to install it with. macOS: brew install mosquitto. Else see https://mosquitto.org/download/"
fi

sudo=()
if [[ $(id -u) != 0 ]]; then
	command -v sudo >/dev/null || fail "neither root nor sudo; as root: apt-get update && apt-get install -y mosquitto"
	sudo=(sudo)
	[[ -t 1 && -z ${CI:-} ]] || sudo=(sudo -n) # nobody is there to type a password
fi

# Debian starts what it installs unless this file says 101 (not allowed). One that is there already is left as it is.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
	trap 'as_root rm -f "$policy"' EXIT
	as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
fi
as_root env DEBIAN_FRONTEND=noninteractive apt-get update
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y mosquitto
if [[ -d /run/systemd/system ]]; then
	as_root systemctl disable mosquitto
fi
find_mosquitto >/dev/null || fail "installed, and still not found in PATH, /usr/sbin or /usr/local/sbin"
