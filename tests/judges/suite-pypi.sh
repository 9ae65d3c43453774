#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Runs the Python SDK's own tests against agentbox-local, and says how many passed and which failed, and why. Not part of any stage.
#
#   sh tests/judges/suite-pypi.sh PATH [PYTEST-ARGUMENT…]     PATH: a checkout of e2b-dev/E2B, outside of the project
#
# By a URL for everything; with SUITE_DOMAIN=1 in the environment by the SDK's own names over TLS, in a
# network of its own where they lead to this machine, as root: then its tests find the addresses that they expect. With SUITE_GATEWAY=1
# by the gateway of an agentboxd in front of agentbox-local.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
sh "$root/tests/setup.sh" test
[ $# -ge 1 ] || { echo "usage: sh tests/judges/suite-pypi.sh PATH [PYTEST-ARGUMENT…]" >&2; exit 2; }
sdk=$(cd "$1/packages/python-sdk" && pwd)
shift
venv=$root/build/judges/suite-pypi
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "$sdk" ]; then
	rm -rf "$venv"
	mkdir -p "$root/build/judges"
	/usr/bin/python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "$sdk" 'pytest>=9.0.3,<10' 'pytest-xdist>=3.3.1,<4' \
		'python-dotenv<2' 'pytest-dotenv<0.6' 'pytest-asyncio>=1.3.0,<2' 'pytest-timeout>=2.4.0,<3'
	echo "$sdk" >"$venv/.installed"
fi
out=$root/build/judges/suite-pypi.xml
rm -f "$out"
cd "$sdk"
PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "$here/with_local.py" ${SUITE_DOMAIN:+--domain} ${SUITE_GATEWAY:+--gateway} "$venv/bin/python" -m pytest tests -n 2 -q -p no:cacheprovider --timeout-method=signal --tb=native \
	--junitxml="$out" "$@" >"$out.log" 2>&1 || :
exec /usr/bin/python3 "$here/suite_report.py" "$out"
