#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Plants bugs, one at a time, and says whether the tables of the pure files or the simulation find them. A mutant that survives is a
# hole in the tests.
#
#   sh tests/mutants/run.sh [NAME…]     none named: all patches of this folder
#
# Each patch is applied to a copy of the tree; only what is run is built there. Exit 1 if one survived,
# or could not be planted.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cycles=${MUTANT_CYCLES:-12000}
tables='tests/unit/test_sandbox_evaluate tests/unit/test_sandbox_pure'
found=0 survived='' broken=''
export LC_ALL=C.UTF-8
command -v ccache >/dev/null 2>&1 && CC="ccache ${CC:-cc}" && export CC

if ! (cd "$root" && tar -cf - --exclude='./build*' --exclude=./.git --exclude=./crash-\* .) | tar -xf - -C "$dir"; then
	echo "the tree cannot be copied"
	exit 1
fi
cd "$dir" || exit 1
if ! meson setup build >setup.log 2>&1 || ! ninja -C build tests/sim/sim >build.log 2>&1; then
	tail -n 20 setup.log build.log
	exit 1
fi
begin=$(date +%s)
if ! build/tests/sim/sim --cycles "$cycles" >sim.log 2>&1; then
	tail -n 30 sim.log
	echo "the simulation fails without any mutant"
	exit 1
fi

limit=$((60 + 5 * ($(date +%s) - begin)))	# seconds: what takes so long does not end

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

if [ $# -eq 0 ]; then
	for p in "$here"/*.patch; do plant "$p"; done
else
	for name in "$@"; do plant "$here/${name%.patch}.patch"; done
fi
echo "$found found; survived:${survived:- none}${broken:+; not planted:$broken}"
[ -z "$survived$broken" ]
