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
results=$PWD/build/results
export LC_ALL=C.UTF-8

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
		return 1
	fi
	note pass "build:$dir"
}

# meson_tests DIR SUITE…: runs the suites that exist, keeps their JUnit file
meson_tests() {
	dir=$1
	shift
	for suite in "$@"; do
		if ! meson test -C "$dir" --list --no-rebuild --suite "$suite" 2>/dev/null | grep -v 'No suitable' | grep -q .; then
			note skip "$dir:$suite" "no test is registered in this suite"
			continue
		fi
		meson test -C "$dir" --no-rebuild --suite "$suite" --print-errorlogs \
			--num-processes "$jobs" >"$results/$dir-$suite.log" 2>&1 ||
			sed -n '/FAIL\|TIMEOUT\|ERROR/,$p' "$results/$dir-$suite.log" | head -n 200
		tail -n 9 "$results/$dir-$suite.log" | grep -v '^ *$'
		cp "$dir/meson-logs/testlog.junit.xml" "$results/$dir-$suite.xml" 2>/dev/null ||
			note fail "$dir:$suite" "meson test left no results"
	done
}

stage_lint() {
	LINT_RESULTS=$results/lines.tsv sh tests/lint/run.sh
}

stage_gcc() {
	build build gcc || return
	meson_tests build unit
	LINT_RESULTS=$results/lines.tsv BUILD_DIR=build sh tests/lint/run.sh built
}

stage_clang() {
	build build-clang clang -Dwerror=true
}

stage_asan() {
	build build-asan gcc -Db_sanitize=address,undefined -Db_lundef=false || return
	meson_tests build-asan unit
	sh tests/it/npm/install.sh
	BUILD_DIR=$PWD/build-asan timeout 2400 /usr/bin/python3 -m pytest tests/it -q \
		-p no:cacheprovider --junitxml="$results/it.xml" ||
		[ -f "$results/it.xml" ] || note fail it "pytest left no results"
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
	case $stage in
	lint | gcc | clang | asan | model | demo) "stage_$stage" ;;
	*)
		echo "no such stage: $stage" >&2
		exit 2
		;;
	esac
	echo "($stage: $(($(date +%s) - begin)) s)"
done

say "results"
exec /usr/bin/python3 tests/lib/results.py "$results"
