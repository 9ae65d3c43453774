#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Branch coverage of the pure core (the files that decide: time and chance are arguments) by its tables in tests/unit.
# Prints a table and, for what is missing, the lines; fails if less than 98 % of a file is reached.
#
#   sh tests/coverage.sh
#
# Builds in build-cov/ what it needs, without optimization, so that every condition of the source is a branch.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8
dir=build-cov
tests='sandbox_pure sandbox_evaluate sandbox_corners upstream_backoff upstream_retry'
files=
for m in sandbox/rules/rules sandbox/rules/evaluate sandbox/rules/policy sandbox/rules/plan sandbox/rules/resolve \
	sandbox/rules/page sandbox/rules/tags auth/grant upstream/backoff upstream/retry; do
	files="$files daemon/$m.c"
done

sh tests/setup.sh test || exit 1
if [ ! -f $dir/build.ninja ]; then
	CC=gcc meson setup $dir -Db_coverage=true -Doptimization=0 >$dir.log 2>&1 || { cat $dir.log; exit 1; }
	rm -f $dir.log
fi
programs=
for t in $tests; do programs="$programs tests/unit/test_$t"; done
# shellcheck disable=SC2086
ninja -C $dir $programs >$dir/build.log 2>&1 || { tail -n 30 $dir/build.log; exit 1; }
find $dir -name '*.gcda' -delete
for p in $programs; do
	$dir/"$p" >$dir/test.log 2>&1 || { cat $dir/test.log; exit 1; }
done
# shellcheck disable=SC2086
exec /usr/bin/python3 tests/lib/coverage.py $dir 98 $files
