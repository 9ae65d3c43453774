#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The E2B command line as a judge of a server: cli.sh FOLDER, where FOLDER has node_modules/@e2b/cli. The first thing that is not as it
# should be is said, and ends it with 1. Where the server is comes from E2B_* variables.
set -u
e2b=$1/node_modules/.bin/e2b
HOME=$(mktemp -d)
export HOME
trap 'rm -rf "$HOME"' EXIT

# run NAME WANTED ARGUMENT…: it must end with 0 and its output must have what is wanted
run() {
	name=$1 wanted=$2
	shift 2
	timeout 60 "$e2b" "$@" </dev/null >"$HOME/out" 2>&1
	status=$?
	if [ "$status" -ne 0 ] || ! grep -q -e "$wanted" "$HOME/out"; then
		echo "$name: e2b $* ended with $status, without '$wanted':"
		tail -n 5 "$HOME/out"
		exit 1
	fi
}

run create '[a-z0-9]\{20\}' sandbox create base --detach
id=$(grep -o 'i[a-z0-9]\{20\}' "$HOME/out" | head -n 1)
run list "$id" sandbox list
run list-json "$id" sandbox list --format json
run info "$id" sandbox info "$id"
run exec 'hello from inside' sandbox exec "$id" echo hello from inside
run logs . sandbox logs "$id"
run pause . sandbox pause "$id"
run list-paused "$id" sandbox list --state paused
run resume . sandbox resume "$id"
run snapshot . sandbox snapshot create "$id"
run snapshots . sandbox snapshot list
run kill . sandbox kill "$id"
