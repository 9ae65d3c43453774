#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What takes too long for the suite, in full size: tests whose small figures the suite has, and some that only run here. Each prints what
# it measured, with the limit and the verdict. It takes gigabytes below /tmp.
#
#   sh tests/shows.sh [TOPIC…] [-- PYTEST-OPTION…]      for example: sh tests/shows.sh gateway -- -k deaths
#
# Without a topic it is all of them. A topic may be given as the number of its issue.
set -eu
cd "$(dirname "$0")/.."

# topic, issue, file, what it shows
table() {
	cat <<'END'
data     5  c_shows.py    a minute for a stopped owner, a minute on a timeout of 15 s, 100 MiB to three readers, minutes at 1 MB/s
data     5  d_shows.py    1 GiB through exec and cp
data     5  f_list.py     60,000 entries listed
judged   10 s_story.py    one story by four kinds of client
judged   10 s_filter.py   the metadata filter, one character at a time
judged   10 a_memory.py   15 and 50 connections of another user ask for all memory, as root
judged   10 c_soak.py     20,000 lives, one after the other: memory and descriptors must not follow
judged   10 v_random.py   100,000 random calls of two users, compared with those of one alone: 0 answers may differ; as root
judged   10 i_goproxy.py  2,600 commands through two of Go's reverse proxies, on HTTP/1.1 and on HTTP/2
judged   10 i_names.py    AGENTBOX_API_KEY alone, a resolver and a trusted CA: whose names are asked for; as root
judged   10 u_keys.py     another team's key for 60 s, and every other way of a key
judged   10 j_judges.py   older SDKs, the E2B command line and programs built on them; installing them takes minutes the first time
gateway  11 g_control.py  100 processes of 20 calls and their connections to the cloud; AgentBox's SDK
gateway  11 g_shows.py    200 creates of two users at a cloud with 20 places, as root; one stream over 20 ms; a page in Chromium
gateway  11 g_hostile.py  hostile clients of HTTP/2, hostile edges: another client's slowest answer in each flood
gateway  11 w_run.py      agentboxctl run dies in each of three ways, 100 times each
warm     13 w_shows.py    claims 20 ms from a cloud, 10,000 over 200 kills, Sandbox.create() of the E2B SDK, a prepare with pip and a server
servers  12 y_restart.py  20 restarts under 500 clients and 100 SDKs with every kind of call, 2,000 connects; deaths under streams
servers  12 y_systemctl.py  the same by `systemctl restart` of the installed packages, under systemd as PID 1
servers  12 w_page.py     the status page in Chromium, empty, with 1,000 sandboxes and with hostile names: nine screenshots
servers  12 y_package.py  the Debian packages: two builds are equal, a tarball builds without git, an upgrade under 32 clients
END
}

files=
judges=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	case $1 in
	-h | --help)
		table
		exit 0
		;;
	esac
	these=$(table | awk -v t="$1" '$1 == t || $2 == t { print "tests/it/" $3 }')
	if [ -z "$these" ]; then
		echo "shows.sh: there is no topic $1; there are $(table | awk '{ print $1 }' | sort -u | tr '\n' ' ')" >&2
		exit 2
	fi
	files="$files $these"
	shift
done
[ $# -eq 0 ] || shift
[ -n "$files" ] || files=$(table | awk '{ print "tests/it/" $3 }')
case $files in *j_judges*) judges=1 ;; esac

sh tests/setup.sh test
[ -f build/build.ninja ] || meson setup build >/dev/null
ninja -C build --quiet
sh tests/it/npm/install.sh
sh tests/it/pypi/install.sh
sh tests/it/abox/install.sh
[ -z "$judges" ] || sh tests/judges/install.sh
# shellcheck disable=SC2086
BUILD_DIR=$PWD/build SHOWS_FULL=1 RUNS=100 exec /usr/bin/python3 -m pytest $files -q -s --durations=0 "$@"
