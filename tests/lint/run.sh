#!/bin/sh
# SPDX-License-Identifier: MIT
#
# All checks that read the source. Quick; run it before a commit.
#
#   sh tests/lint/run.sh           what needs the text only
#   sh tests/lint/run.sh built     what needs a finished build in $BUILD_DIR (default build/)
set -u
cd "$(dirname "$0")/../.." || exit 1
case ${1:-text} in
text) checks="layers rooms text contracts musts tools" ;;
built) checks=built ;;
*)
	echo "usage: sh tests/lint/run.sh [built]" >&2
	exit 2
	;;
esac
bad=0
for c in $checks; do
	PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "tests/lint/$c.py"
	case $? in
	0) ;;
	3) bad=1 ;;
	*)	# it did not get to say anything
		bad=1
		[ -z "${LINT_RESULTS:-}" ] || printf 'fail\tlint:%s\tthe check itself broke\n' "$c" >>"$LINT_RESULTS"
		;;
	esac
done
exit $bad
