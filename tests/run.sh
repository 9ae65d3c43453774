#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs what the tests need, builds and runs all of them, by hand as in CI. The last line counts.
#
#   sh tests/run.sh [STAGE…]     stages: lint gcc clang asan model demo     (none named: all, in this order)
#
# Everything it writes is in build/, build-clang/, build-asan/ and build/results/.
set -u

cd "$(dirname "$0")/.." || exit 1
stages=${*:-lint gcc clang asan model demo}
jobs=$(nproc)
workers=$((jobs > 4 ? 4 : jobs))
results=$PWD/build/results
export LC_ALL=C.UTF-8

for stage in $stages; do
	case $stage in
	lint | gcc | clang | asan | model | demo) ;;
	*)
		echo "no such stage: $stage" >&2
		exit 2
		;;
	esac
done

# One run at a time, since two would write into each other's results. What a run has started holds the lock too, so
# that what is left of one that was killed cannot write into the next.
mkdir -p build
exec 9>build/run.lock
if ! flock -n 9; then
	echo "run.sh: another run, or what is left of one, is still at work in this clone: it holds build/run.lock" >&2
	exit 2
fi

sh tests/setup.sh test || exit 1
if command -v ccache >/dev/null 2>&1; then
	ccache='ccache '
else
	ccache=
fi

rm -rf "$results"
mkdir -p "$results"

say() { printf '\n==== %s\n' "$*"; }
# note pass|fail|skip NAME [REASON]: one line for the count at the end
note() { printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$results/lines.tsv"; }

# build DIR COMPILER MESON-OPTIONS…: configures once, builds, takes a warning for an error
build() {
	dir=$1 cc=$2
	shift 2
	if [ ! -f "$dir/build.ninja" ]; then
		CC="$ccache$cc" meson setup "$dir" "$@" >"$results/setup-$dir.log" 2>&1 || {
			tail -n 20 "$results/setup-$dir.log"
			note fail "build:$dir" "meson setup"
			return 1
		}
	fi
	log=$results/build-$dir.log
	if ! ninja -C "$dir" -j "$jobs" >"$log" 2>&1; then
		grep -A 20 -e '^FAILED' -e 'error:' "$log" | head -n 60
		note fail "build:$dir" "does not build"
		return 1
	fi
	if grep 'warning:' "$log"; then
		note fail "build:$dir" "warnings"
		ninja -C "$dir" -t clean >/dev/null	# or the next run would not see them again
		return 1
	fi
	note pass "build:$dir"
}

# unit_tests DIR: runs them, keeps meson's list of results; a run that ends badly is a failure whatever the list says
unit_tests() {
	dir=$1 log=$results/$1-unit.log list=$results/$1-unit.json
	rm -f "$dir/meson-logs/testlog.json"
	status=0
	meson test -C "$dir" --no-rebuild --suite unit --print-errorlogs --num-processes "$jobs" >"$log" 2>&1 || status=$?
	[ "$status" -eq 0 ] || sed -n '/FAIL\|TIMEOUT\|ERROR/,$p' "$log" | head -n 200
	tail -n 9 "$log" | grep -v '^ *$'
	if ! cp "$dir/meson-logs/testlog.json" "$list" 2>/dev/null || [ ! -s "$list" ]; then
		note fail "$dir:unit" "meson test left no results"
	elif [ "$status" -ne 0 ] && ! grep -qv '"result": "\(OK\|SKIP\)"' "$list"; then
		note fail "$dir:unit" "meson test ended with $status"
	fi
}

# it_tests NAME DIR PYTEST-OPTIONS…: the integration tests on the programs of DIR, a file at a time in each worker: they
# wait far more than they compute, and what a file shares (a daemon, a cloud) stays in one process
it_tests() {
	name=$1 dir=$2 list=$results/$1.xml
	shift 2
	status=0
	BUILD_DIR=$PWD/$dir timeout 3300 /usr/bin/python3 -m pytest tests/it -q -n "$workers" --dist loadfile \
		--junitxml="$list" "$@" || status=$?
	if [ ! -s "$list" ]; then
		note fail "$name" "pytest left no results"
	elif [ "$status" -ne 0 ] && ! grep -q '<failure\|<error' "$list"; then
		note fail "$name" "pytest ended with $status"
	fi
}

stage_lint() {
	LINT_RESULTS=$results/lines.tsv sh tests/lint/run.sh
	if sh tests/lib/wire-cases.sh >"$results/wire-cases.log"; then
		note pass lint:wire-cases
	else
		grep MISSING "$results/wire-cases.log"
		note fail lint:wire-cases "a case of the contract has no test"
	fi
	if sh tests/lib/pool-rows.sh >"$results/pool-rows.log"; then
		note pass lint:pool-rows
	else
		grep -e MISSING -e 'out of date' "$results/pool-rows.log"
		note fail lint:pool-rows "a fault of the network has no test"
	fi
}

stage_gcc() {
	build build gcc || return
	unit_tests build
	it_tests it-plain build -m plain
	LINT_RESULTS=$results/lines.tsv BUILD_DIR=build sh tests/lint/run.sh built
}

stage_clang() {
	build build-clang clang -Dwerror=true
}

stage_asan() {
	build build-asan gcc -Db_sanitize=address,undefined -Db_lundef=false || return
	unit_tests build-asan
	sh tests/it/npm/install.sh
	sh tests/it/pypi/install.sh
	sh tests/it/abox/install.sh
	it_tests it build-asan
}

stage_model() {
	if sh tests/model/run.sh; then
		note pass model
	else
		note fail model "see above"
	fi
}

stage_demo() {
	build build gcc || return
	if BUILD_DIR=$PWD/build timeout 280 sh tests/demo.sh >"$results/demo.log" 2>&1; then
		note pass demo
	else
		cat "$results/demo.log"
		note fail demo "see above"
	fi
}

for stage in $stages; do
	say "$stage"
	begin=$(date +%s)
	"stage_$stage"
	echo "($stage: $(($(date +%s) - begin)) s)"
done

say "results"
exec /usr/bin/python3 tests/lib/results.py "$results"
