#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Fuzzes every target under ASan and UBSan with libFuzzer until each has run EACH times and all together TOTAL times.
#
#   sh tests/fuzz/long.sh DIR [EACH [TOTAL]]     10^6 and 10^8 if not given
#   sh tests/fuzz/long.sh DIR report             what was reached so far
#
# It may be ended at any time and started again: DIR has what is left of each part, for each target: NAME/ (its inputs, which grow
# from tests/fuzz/corpus/NAME), NAME.parts (executions, edges reached and inputs, one line a part) and NAME.log (the last part).
# Parts take PART seconds (60). A finding lies in DIR/findings; its target gets no further part until the file is gone, and the end is 1.
# CPU: the processors that it may use (taskset), ONLY: names of the targets.
#
# cloud and agent play whole sequences, each from the next seed, by their own program (sequences_main.c): a tenth of EACH is enough
# of them. Their "inputs" are the answers that they got.
set -eu
dir=${1:?usage: sh tests/fuzz/long.sh DIR [EACH [TOTAL] | report]}
each=${2:-1000000} total=${3:-100000000} part=${PART:-60}
mkdir -p "$dir/findings"
dir=$(cd "$dir" && pwd)
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build-fuzz}

# Where memory came from is asked when a finding is shown again; until then the stacks of each allocation cost a third of the time.
export ASAN_OPTIONS="malloc_context_size=0:quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

# is_sequence NAME
is_sequence() {
	case $1 in cloud|agent) return 0 ;; *) return 1 ;; esac
}

# program NAME: what runs it
program() {
	case $1 in cloud) echo sequences ;; agent) echo agent_sequences ;; *) echo "fuzz_$1" ;; esac
}

# enough NAME: executions of it
enough() {
	if is_sequence "$1"; then echo $((each / 10)); else echo "$each"; fi
}

# executions NAME: of all its parts
executions() {
	[ ! -f "$dir/$1.parts" ] || awk '{ n += $1 } END { printf "%d\n", n }' "$dir/$1.parts"
}

# is_stopped NAME: it has a finding
is_stopped() {
	for f in "$dir/findings/$1".*; do [ ! -e "$f" ] || return 0; done
	return 1
}

report() {
	printf '%-18s %14s %9s %9s  %s\n' target executions edges inputs finding
	sum=0
	for name in $names; do
		n=$(executions "$name")
		sum=$((sum + ${n:-0}))
		edges=- inputs=-
		[ ! -f "$dir/$name.parts" ] || read -r edges inputs <<-END
			$(awk '$2 > e { e = $2 } { i = $3 } END { print e + 0, i + 0 }' "$dir/$name.parts")
		END
		found=$(cd "$dir/findings" && find . -name "$name.*" | sed 's|^\./||' | sort | tr '\n' ' ')
		printf '%-18s %14d %9s %9s  %s\n' "$name" "${n:-0}" "$edges" "$inputs" "${found:-none}"
	done
	printf '%-18s %14d\n' all "$sum"
}

# run_sequences NAME: the same of one that plays sequences
run_sequences() {
	name=$1 ran=$(executions "$1")
	if ${CPU:+taskset -c "$CPU"} "$build/tests/fuzz/$(program "$name")" 1000000 $((${ran:-0} + 1)) "$part" >"$dir/$name.log" 2>"$dir/$name.err"
	then
		sed -n 's/^\([0-9]*\) sequences of .*, \([0-9]*\) in all, \([0-9]*\) edges .*/\1 \3 \2/p' "$dir/$name.log" >>"$dir/$name.parts"
	else
		cp "$dir/$name.err" "$dir/findings/$name.sequence-$(tr '\r' '\n' <"$dir/$name.err" | sed -n 's/^sequence \([0-9]*\).*/\1/p' | tail -n 1)"
	fi
}

# run_part NAME: until its time is over, or it has found something
run_part() {
	name=$1
	if is_sequence "$name"; then
		run_sequences "$name"
		return
	fi
	mkdir -p "$dir/$name"
	set -- "$dir/$name"
	[ ! -d "tests/fuzz/corpus/$name" ] || set -- "$@" "tests/fuzz/corpus/$name"
	${CPU:+taskset -c "$CPU"} "$build/tests/fuzz/fuzz_$name" -max_total_time="$part" -print_final_stats=1 -timeout=120 -rss_limit_mb=1024 \
		-artifact_prefix="$dir/findings/$name." "$@" >"$dir/$name.log" 2>&1 || :
	n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/$name.log")
	# Its last "cov:" counts the edges, "corp:" the inputs that each reach something else.
	[ -z "$n" ] || sed -n 's/.* cov: \([0-9]*\) .* corp: \([0-9]*\)\/.*/\1 \2/p' "$dir/$name.log" | tail -n 1 |
		sed "s/^/$n /" >>"$dir/$name.parts"
}

names=${ONLY:-$(printf '%s\n' tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s/\.c$//' | tr '\n' ' ')}
if [ "$each" = report ]; then
	report
	exit 0
fi
sh tests/setup.sh test
[ -f "$build/build.ninja" ] || CC=${CLANG:-clang} CFLAGS=-fsanitize=fuzzer-no-link meson setup "$build" \
	-Db_sanitize=address,undefined -Db_lundef=false >/dev/null
# shellcheck disable=SC2046
ninja -C "$build" $(for n in $names; do echo "tests/fuzz/$(program "$n")"; done) >"$dir/build.log" || { tail -n 20 "$dir/build.log"; exit 1; }

while :; do
	sum=0 ran=0
	for name in $names; do
		n=$(executions "$name")
		sum=$((sum + ${n:-0}))
	done
	for name in $names; do
		n=$(executions "$name")
		if is_stopped "$name" || { [ "${n:-0}" -ge "$(enough "$name")" ] && [ "$sum" -ge "$total" ]; }; then
			continue
		fi
		run_part "$name"
		ran=1
	done
	[ "$ran" = 1 ] || break
done
report
[ -z "$(find "$dir/findings" -type f)" ]
