#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The whole line on one machine: installs the packages, builds, starts agentboxd on agentbox-local,
# creates a sandbox, runs a command with streamed output, writes and reads a file, lists, kills, runs a program
# with the AgentBox SDK where there is one, stops everything and shows that nothing is left. Writes nothing outside this folder.
#
#   sh tests/demo.sh          ($BUILD_DIR, if set, is a build to use instead of build/)
set -eu

cd "$(dirname "$0")/.."
root=$(pwd -P)
say() { printf '\n== %s\n' "$*"; }
die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

if [ -z "${BUILD_DIR:-}" ]; then
	say "packages"
	sh tests/setup.sh build
	say "build"
	BUILD_DIR=$root/build
	[ -f "$BUILD_DIR/build.ninja" ] || meson setup "$BUILD_DIR" >/dev/null ||
		die "meson setup failed: see $BUILD_DIR/meson-logs/meson-log.txt"
	ninja -C "$BUILD_DIR" --quiet
fi
agentboxd=$BUILD_DIR/daemon/agentboxd
agentboxctl=$BUILD_DIR/client/agentboxctl

# A socket's path has room for 107 bytes, so a clone in a very deep folder lends its place to /tmp.
work=$BUILD_DIR/demo.$$
[ ${#work} -le 90 ] || work=$(mktemp -d)
mkdir -p -m 700 "$work"
socket=$work/s
daemon=

# What is ours on this machine: processes running our programs or living in a mount namespace that
# did not exist before, mounts with our folder in them, cgroups of our agentbox-local.
cgroup=
ours() {
	for p in /proc/[0-9]*; do
		ns=$(readlink "$p/ns/mnt" 2>/dev/null) || continue
		exe=$(readlink "$p/exe" 2>/dev/null) || exe=
		case $exe in
		"$BUILD_DIR"/*) ;;
		*)
			[ -n "${namespaces_before:-}" ] || continue
			case " $namespaces_before " in *" $ns "*) continue ;; esac
			grep -qs "$work" "$p/mountinfo" || continue
			;;
		esac
		printf 'process %s %s\n' "${p#/proc/}" "$(tr '\0' ' ' <"$p/cmdline" 2>/dev/null | sed 's/ *$//')"
	done
	grep "$work" /proc/self/mountinfo | cut -d' ' -f5 | sed 's/^/mount /' || :
	[ -z "$cgroup" ] || find /sys/fs/cgroup -type d -path "*/$cgroup*" 2>/dev/null | sed 's/^/cgroup /' || :
}
listing() { sort | sed 's/^/  /' | grep . || echo "  nothing"; }

cleanup() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$daemon" ]; then
		"$agentboxctl" -s "$socket" local stop >/dev/null 2>&1 || :
		kill "$daemon" 2>/dev/null || :
		wait "$daemon" 2>/dev/null || :
		echo "demo: the daemon's log ends with:" >&2
		tail -n 20 "$work/log" >&2 || :
	fi
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

namespaces_before=
namespaces_before=$(readlink /proc/[0-9]*/ns/mnt 2>/dev/null | sort -u | tr '\n' ' ')
say "before: processes, mounts and cgroups of agentbox"
ours >"$work/before"
listing <"$work/before"

say "agentboxd --local"
printf '[policy]\nrelease_grace = 1s\n' >"$work/conf"
"$agentboxd" --local --config "$work/conf" --state-dir "$work/state" --socket "$socket" >"$work/log" 2>&1 &
daemon=$!
ctl() { "$agentboxctl" -s "$socket" "$@"; }
ctl --wait 20s status

say "create"
id=$(ctl create -m from=demo --timeout 5m)
echo "$id"

say "running: processes, mounts and cgroups of agentbox"
for p in $(ours | sed -n 's/^process \([0-9]*\) .*/\1/p'); do
	found=$(sed -n 's|.*/\(agentbox-local-[0-9a-f]*\).*|\1|p' "/proc/$p/cgroup" 2>/dev/null | head -n 1)
	cgroup=${found:-$cgroup}
done
ours | listing

say "exec: both outputs as they come, and the exit code"
code=0
ctl exec "$id" -- sh -c 'for i in 1 2 3; do echo "line $i"; sleep 0.2; done
	echo "to standard error" >&2; exit 7' || code=$?
echo "exit code: $code"
[ "$code" -eq 7 ] || die "the command's exit code is 7, agentboxctl said $code"

say "cp and cat: a file in and out"
printf 'a file, written at %s\n' "$(date -u +%FT%TZ)" >"$work/note.txt"
ctl cp "$work/note.txt" "$id:/home/user/note.txt"
ctl cat "$id:/home/user/note.txt"
ctl cp "$id:/home/user/note.txt" "$work/note.back"
cmp "$work/note.txt" "$work/note.back" || die "the file came back changed"

say "ls"
ctl ls

say "kill"
ctl kill "$id"
ctl ls

say "run: a program with the SDK, killed before it cleans up"
sdk=$root/tests/it/abox/site
if PYTHONPATH=$sdk python3 -c 'import agentbox' 2>/dev/null; then
	code=0
	PYTHONPATH=$sdk ctl run -- python3 -c '
import os, signal
from agentbox import Sandbox
box = Sandbox.create()
print(box.sandbox_id, box.commands.run("echo hello from $(whoami)").stdout, end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)' || code=$?
	echo "exit code: $code"
	[ "$code" -eq 137 ] || die "the program ended by signal 9, agentboxctl said $code"
	left=100
	while [ -n "$(ctl --json ls)" ]; do
		left=$((left - 1))
		[ "$left" -gt 0 ] || die "the program's sandbox is still there"
		sleep 0.1
	done
	ctl ls
else
	echo "left out: python3 has no agentbox (sh tests/it/abox/install.sh)"
fi

say "stop"
ctl local stop
kill "$daemon"
code=0
wait "$daemon" || code=$?
daemon=
[ "$code" -eq 0 ] || die "agentboxd ended with $code: $(tail -n 5 "$work/log")"

say "after: processes, mounts and cgroups of agentbox"
ours >"$work/after"
listing <"$work/after"
cmp -s "$work/before" "$work/after" || die "something is left"
say "done"
