#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The storm of tests/it/c_shows.py (20 times kill -9 while 8 processes create) on agentboxd with one planted bug, which it must
# find by the journal of agentbox-local.
#
#   sh tests/mutants/storm.sh [NAME]     default: retry-after-lost-answer
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
name=${1:-retry-after-lost-answer}
sh "$root/tests/setup.sh" test || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export LC_ALL=C.UTF-8
command -v ccache >/dev/null 2>&1 && CC="ccache ${CC:-cc}" && export CC

(cd "$root" && tar -cf - --exclude='./build*' --exclude=./.git --exclude=./crash-\* .) | tar -xf - -C "$dir" || exit 1
cd "$dir" || exit 1
patch -s -p1 <"$here/$name.patch" || exit 1
if ! meson setup build >build.log 2>&1 ||
	! ninja -C build daemon/agentboxd daemon/local/agentbox-local client/agentboxctl >>build.log 2>&1; then
	tail -n 20 build.log
	exit 1
fi
BUILD_DIR=$dir/build /usr/bin/python3 -m pytest tests/it/c_shows.py -q -x -k one_request >storm.log 2>&1
status=$?
if [ "$status" -eq 0 ]; then
	echo "$name: SURVIVED"
	exit 1
fi
if ! grep -q '^E *AssertionError: one request id, accepted more than once' storm.log; then
	tail -n 40 storm.log
	echo "$name: the storm failed for another reason"
	exit 1
fi
echo "$name: found: one request id, accepted more than once"
