#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Plants bugs, one at a time, and says whether they are found: those of this folder by the tables of the pure files or by the
# simulation, those of rows/, each of which takes a mend back, by the one test that its first line names:
#
#   # test: unit NAME                   tests/unit/test_NAME
#   # test: it FILE.py::TEST            tests/it/FILE.py, all its parameters
#   # test: fuzz sequences              tests/fuzz/sequences, 4,000 of them; so does agent_sequences
#   # test: lint FILE                   tests/lint/FILE.py
#
# A mutant that survives is a hole in the tests. So is a test that fails, or is skipped, without the patch.
#
#   sh tests/mutants/run.sh [NAME…]     none named: all patches of this folder and of rows/; "rows": all of rows/
#
# Each patch is applied to a copy of the tree; only what is run is built there. Exit 1 if one survived,
# or could not be planted.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
sh "$root/tests/setup.sh" test || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cycles=${MUTANT_CYCLES:-12000}
tables='tests/unit/test_sandbox_evaluate tests/unit/test_sandbox_pure tests/unit/test_contract_json
tests/unit/test_contract_link tests/unit/test_contract_list tests/unit/test_contract_netrules tests/unit/test_contract_route'
found=0 survived='' broken=''
export LC_ALL=C.UTF-8
command -v ccache >/dev/null 2>&1 && CC="ccache ${CC:-cc}" && export CC

if ! (cd "$root" && tar -cf - --exclude='./build*' --exclude=./.git --exclude=./crash-\* .) | tar -xf - -C "$dir"; then
	echo "the tree cannot be copied"
	exit 1
fi
cd "$dir" || exit 1
if ! meson setup build >setup.log 2>&1; then
	tail -n 20 setup.log
	exit 1
fi
limit=
# What tests/it may run: all but the programs that are tests by themselves, which take longer to link than the rest.
programs=$(meson introspect build --targets | python3 -c '
import json, os, sys
for t in json.load(sys.stdin):
    if not os.path.relpath(t["defined_in"]).startswith(("tests/unit/", "tests/sim/", "tests/fuzz/")):
        print(*[os.path.relpath(f, "build") for f in t["filename"]])') || exit 1

# try_simulation: without any mutant, once, before the first that it is to find; it also says how long it may take
try_simulation() {
	[ -z "$limit" ] || return 0
	begin=$(date +%s)
	if ! ninja -C build tests/sim/sim >build.log 2>&1 || ! build/tests/sim/sim --cycles "$cycles" >sim.log 2>&1; then
		tail -n 30 build.log sim.log
		echo "the simulation fails without any mutant"
		exit 1
	fi
	limit=$((60 + 5 * ($(date +%s) - begin)))	# seconds: what takes so long does not end
}

# tables_fail: the tests of the pure files, which take no time
tables_fail() {
	for who in $tables; do
		"build/$who" >tables.log 2>&1 || return 0
	done
	return 1
}

# take_out PATCH: the files as they were
take_out() {
	sed -n 's|^+++ b/||p' "$1" | while read -r file; do
		cp "$root/$file" "$file"
	done
}

# plant PATCH: builds it, runs it, takes it out again
plant() {
	name=$(basename "$1" .patch)
	try_simulation
	if ! patch -s -p1 -F0 <"$1" >patch.log 2>&1; then
		printf '%-32s does not apply\n' "$name"
		broken="$broken $name"
		take_out "$1"
		return
	fi
	if ! ninja -C build tests/sim/sim $tables >build.log 2>&1; then
		printf '%-32s does not build: %s\n' "$name" "$(grep -m 1 -E 'rror|FAILED' build.log | cut -c 1-90)"
		broken="$broken $name"
	elif tables_fail; then
		printf '%-32s found: by the tables of %s\n' "$name" "$who"
		found=$((found + 1))
	elif timeout "$limit" build/tests/sim/sim --seeds tests/sim/seeds >sim.log 2>&1 &&
		timeout "$limit" build/tests/sim/sim --cycles "$cycles" >sim.log 2>&1; then
		printf '%-32s SURVIVED\n' "$name"
		survived="$survived $name"
	else
		why=$(grep -m 1 VIOLATION sim.log | cut -c 1-90)
		printf '%-32s found: %s\n' "$name" "${why:-it does not end}"
		found=$((found + 1))
	fi
	take_out "$1"
}

# build_for KIND WHAT: what one test needs
build_for() {
	if [ "$1" = unit ]; then
		ninja -C build "tests/unit/test_$2" >build.log 2>&1
	elif [ "$1" = fuzz ]; then
		ninja -C build "tests/fuzz/$2" >build.log 2>&1
	elif [ "$1" = lint ]; then
		:
	else
		# shellcheck disable=SC2086
		ninja -C build $programs >build.log 2>&1
	fi
}

# test_passes KIND WHAT: runs just that; a test that was skipped has not passed
test_passes() {
	if [ "$1" = unit ]; then
		timeout 300 "build/tests/unit/test_$2" >row.log 2>&1
	elif [ "$1" = fuzz ]; then
		timeout 600 "build/tests/fuzz/$2" 4000 >row.log 2>&1
	elif [ "$1" = lint ]; then
		/usr/bin/python3 "tests/lint/$2.py" >row.log 2>&1
	else
		BUILD_DIR=$dir/build timeout 600 /usr/bin/python3 -m pytest "tests/it/$2" -q -x >row.log 2>&1 && grep -q '[0-9] passed' row.log
	fi
}

# passes_before KIND WHAT: without any patch; each test is asked once
passes_before() {
	key=before.$(echo "$1 $2" | tr -c 'A-Za-z0-9\n' _)
	if [ ! -f "$key" ]; then
		{ build_for "$1" "$2" && test_passes "$1" "$2" && echo yes || echo no; } >"$key"
	fi
	[ "$(cat "$key")" = yes ]
}

# plant_row PATCH: its own test must fail with it
plant_row() {
	name=$(basename "$1" .patch)
	kind='' what=''
	read -r _ _ kind what <"$1"
	case $(head -n 1 "$1") in
	"# test: unit "*|"# test: it "*::*|"# test: fuzz sequences"|"# test: fuzz agent_sequences"|"# test: lint "*) ;;
	*)
		printf '%-40s names no test in its first line\n' "$name"
		broken="$broken $name"
		return
		;;
	esac
	if ! passes_before "$kind" "$what"; then
		printf '%-40s its test does not pass without it: %s\n' "$name" "$(tail -n 1 row.log | cut -c 1-90)"
		broken="$broken $name"
	elif ! patch -s -p1 -F0 <"$1" >patch.log 2>&1; then
		printf '%-40s does not apply\n' "$name"
		broken="$broken $name"
	elif ! build_for "$kind" "$what"; then
		printf '%-40s does not build: %s\n' "$name" "$(grep -m 1 -E 'rror|FAILED' build.log | cut -c 1-90)"
		broken="$broken $name"
	elif test_passes "$kind" "$what"; then
		printf '%-40s SURVIVED %s %s\n' "$name" "$kind" "$what"
		survived="$survived $name"
	else
		printf '%-40s found: by %s %s\n' "$name" "$kind" "$what"
		found=$((found + 1))
	fi
	take_out "$1"
}

# all_rows: the patches of rows/, if there are any
all_rows() {
	for p in "$here"/rows/*.patch; do
		[ ! -f "$p" ] || plant_row "$p"
	done
}

if [ $# -eq 0 ]; then
	for p in "$here"/*.patch; do plant "$p"; done
	all_rows
fi
for name in "$@"; do
	name=${name%.patch}
	if [ "$name" = rows ]; then
		all_rows
	elif [ -f "$here/rows/$name.patch" ]; then
		plant_row "$here/rows/$name.patch"
	else
		plant "$here/$name.patch"
	fi
done
echo "$found found; survived:${survived:- none}${broken:+; not planted:$broken}"
[ -z "$survived$broken" ]
