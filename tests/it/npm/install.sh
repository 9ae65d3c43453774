#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the judges of package.json here. Where there is no node or the registry does not answer it says
# so and ends with 0: the tests that need them are then skipped, by name.
set -u
cd "$(dirname "$0")" || exit 1

if ! command -v npm >/dev/null 2>&1; then
	echo "npm judges: no npm on this machine"
	exit 0
fi
want=$(cksum <package.json)
[ "$(cat node_modules/.installed 2>/dev/null)" != "$want" ] || exit 0
if timeout 120 npm install --no-package-lock --no-progress --loglevel=error --fetch-retries=1 \
	--fetch-timeout=20000 </dev/null; then
	echo "$want" >node_modules/.installed
else
	echo "npm judges: not installed, the registry does not answer"
fi
exit 0
