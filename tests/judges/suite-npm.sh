#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs the JavaScript SDK's own tests against agentbox-local, and says how many passed and which failed, and why.
# Not part of any stage: it needs a checkout, into which it installs what the tests need.
#
#   sh tests/judges/suite-npm.sh PATH [VITEST-ARGUMENT…]      PATH: a checkout of e2b-dev/E2B, outside of the project
#
# By a URL for everything; with SUITE_DOMAIN=1 in the environment by the SDK's own names over TLS, in a
# network of its own where they lead to this machine, as root: then its tests find the addresses that they expect. With SUITE_GATEWAY=1
# by the gateway of an agentboxd in front of agentbox-local.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
sh "$root/tests/setup.sh" test
[ $# -ge 1 ] || { echo "usage: sh tests/judges/suite-npm.sh PATH [VITEST-ARGUMENT…]" >&2; exit 2; }
sdk=$(cd "$1/packages/js-sdk" && pwd)
shift
command -v npm >/dev/null 2>&1 || { echo "suite-npm.sh: there is no npm" >&2; exit 1; }
cd "$sdk"
if [ ! -d node_modules/vitest ]; then
	npm install --omit=dev --legacy-peer-deps --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error </dev/null
	npm install --no-save --legacy-peer-deps --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error \
		vitest@4 @vitest/browser@4 @vitest/browser-playwright@4 playwright@1 dotenv@16 msw@2 </dev/null
fi
out=$root/build/judges/suite-npm.json
mkdir -p "$root/build/judges"
rm -f "$out"
CI=1 /usr/bin/python3 "$here/with_local.py" ${SUITE_DOMAIN:+--domain} ${SUITE_GATEWAY:+--gateway} npx vitest run --project unit --project connectionConfig --project template --reporter=json \
	--outputFile="$out" "$@" >"$out.log" 2>&1 || :
exec /usr/bin/python3 "$here/suite_report.py" "$out"
