#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Records tests/golden/agent: what the real agent of a sandbox (envd) answers. It is built with Go from a checkout outside of the
# project; nothing of its source is kept, only the bytes that it answered.
#
#   sh tests/judges/record.sh PATH      PATH: a checkout of e2b-dev/infra, or an envd program built from one; as root
#
# The agent runs in namespaces of its own (mounts, processes, network), since it is made to own a whole machine: users, home and
# the folders for its state are new there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: sh tests/judges/record.sh PATH" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "record.sh: needs root for namespaces" >&2; exit 1; }
sh "$here/../setup.sh" test
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
envd=$1
if [ -d "$envd" ]; then
	command -v go >/dev/null 2>&1 || { echo "record.sh: no go to build $envd with" >&2; exit 1; }
	(cd "$envd/packages/envd" && go build -o "$tmp/envd" .)
	envd=$tmp/envd
fi
mkdir "$tmp/etc"
printf 'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n' >"$tmp/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n' >"$tmp/etc/group"
export RECORD_TMP="$tmp" RECORD_ENVD="$envd" RECORD_HERE="$here"
unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc sh -eu -c '
	ip link set lo up
	hostname sandbox
	mount -t tmpfs tmpfs /home
	mount -t tmpfs tmpfs /run
	mkdir -m 755 /home/user && chown 1000:1000 /home/user
	mount --bind "$RECORD_TMP/etc/passwd" /etc/passwd
	mount --bind "$RECORD_TMP/etc/group" /etc/group
	exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 RECORD_TMP="$RECORD_TMP" \
		/usr/bin/python3 "$RECORD_HERE/record_agent.py" "$RECORD_ENVD"
'
