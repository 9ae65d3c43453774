#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Records tests/golden/sdk: what the SDKs send, answered from tests/golden. Of old versions only what the newest sends differently
# is kept.
#
#   sh tests/judges/record-sdks.sh
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
sh "$root/tests/setup.sh" test || exit 1
judges=$root/build/judges

# record FOLDER LIKE SOURCE VERSION FLAVOUR JUDGE PROGRAM ARGUMENT…: PROGRAM is the judge's own where it has one
record() {
	folder=$1 like=$2 source=$3 version=$4 flavour=$5 judge=$6 program=$7
	shift 7
	said=$(sh "$here/install.sh" "$judge")
	case $said in
	skip*)
		echo "$said"
		return
		;;
	esac
	[ ! -x "$judges/$judge/bin/$program" ] || program=$judges/$judge/bin/$program
	/usr/bin/python3 "$here/recorder.py" "$folder" "$like" "$source" "$version" "$flavour" "$program" "$@"
}

newest() { sed -n "s/^$1-//p" "$here/versions.txt" | head -n 1; }
older() { sed -n "s/^$1-//p" "$here/versions.txt" | tail -n +2; }

pypi=$(newest pypi) npm=$(newest npm) abox=$(newest abox) cli=$(newest cli)
record sdk/pypi - "e2b of PyPI" "$pypi" e2b "pypi-$pypi" python "$here/drive.py" e2b async
record sdk/pypi-sync sdk/pypi "e2b of PyPI, synchronous" "$pypi" e2b "pypi-$pypi" python "$here/drive.py" e2b sync
record sdk/abox - "abox-sdk of PyPI" "$abox" agentbox "abox-$abox" python "$here/drive.py" agentbox async
record sdk/abox-sync sdk/abox "abox-sdk of PyPI, synchronous" "$abox" agentbox "abox-$abox" python "$here/drive.py" agentbox sync
record sdk/npm - "e2b of npm" "$npm" e2b "npm-$npm" node "$here/drive.mjs" "$judges/npm-$npm"
record sdk/cli '~sdk/npm' "@e2b/cli of npm" "$cli" e2b "cli-$cli" sh "$here/drive-cli.sh" "$judges/cli-$cli"
for v in $(older pypi); do
	record "sdk/pypi-$v" '~sdk/pypi' "e2b of PyPI" "$v" e2b "pypi-$v" python "$here/drive.py" e2b sync
done
for v in $(older npm); do
	record "sdk/npm-$v" '~sdk/npm' "e2b of npm" "$v" e2b "npm-$v" node "$here/drive.mjs" "$judges/npm-$v"
done
