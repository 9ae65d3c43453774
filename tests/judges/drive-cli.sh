#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Makes the E2B command line send its requests to tests/judges/recorder.py: drive-cli.sh FOLDER
set -u
e2b=$1/node_modules/.bin/e2b
id=i0a1b2c3d4e5f6g7h8i9j
HOME=$(mktemp -d)
export HOME E2B_API_KEY=e2b_00112233445566778899aabbccddeeff00112233 E2B_API_URL="$RECORDER_URL" E2B_SANDBOX_URL="$RECORDER_URL"
trap 'rm -rf "$HOME"' EXIT

go() {
	curl -s "$RECORDER_URL/_step/$1"
	shift
	timeout 30 "$e2b" "$@" </dev/null >"$HOME/out" 2>&1 || { echo "e2b $*:"; tail -n 3 "$HOME/out"; }
}

go list sandbox list
go list-json sandbox list --state running,paused --metadata a=b --limit 2 --format json
go info sandbox info $id
go logs sandbox logs $id
go logs-json sandbox logs $id --format json --level WARN
go metrics sandbox metrics $id
go pause sandbox pause $id
go resume sandbox resume $id
go exec sandbox exec $id echo hi
go create sandbox create base --detach
go snapshots sandbox snapshot list
go snapshot sandbox snapshot create $id
go snapshot-delete sandbox snapshot delete team-slug/my-snap:v1
go templates template list
go template-delete template delete my-template --yes
go kill sandbox kill $id
go kill-all sandbox kill --all
