#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the judges of requirements.txt into site/, for /usr/bin/python3. Where there is no pip or the registry does not
# answer it says so and ends with 0: the tests that need them are then skipped, by name.
set -u
cd "$(dirname "$0")" || exit 1

if ! /usr/bin/python3 -m pip --version >/dev/null 2>&1; then
	echo "abox judges: no pip on this machine"
	exit 0
fi
want=$(cksum <requirements.txt)
[ "$(cat site/.installed 2>/dev/null)" != "$want" ] || exit 0
rm -rf site
if timeout 120 /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir --retries 1 \
	--timeout 20 --only-binary :all: --root-user-action ignore --target site -r requirements.txt </dev/null; then
	echo "$want" >site/.installed
else
	rm -rf site
	echo "abox judges: not installed, the registry does not answer"
fi
exit 0
