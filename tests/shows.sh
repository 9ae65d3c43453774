#!/bin/sh
# SPDX-License-Identifier: MIT
#
# tests/it/c_shows.py and d_shows.py in full size: a minute for a stopped owner, a minute on a timeout of 15 s; 1 GiB through exec
# and cp, 100 MiB to three readers, minutes at 1 MB/s. Takes some minutes and 4 GB below /tmp; what it measured is printed. The suite
# runs the same tests with small figures. a_memory.py lets 15 and 50 connections of another user ask for all memory, as root, and
# prints each figure with its limit and the verdict. i_goproxy.py runs 2,600 commands through two of Go's reverse proxies, on
# HTTP/1.1 and on HTTP/2; f_list.py lists 60,000 entries. s_story.py and s_filter.py are as in the suite: one story by four kinds
# of client, the metadata filter one character at a time. y_restart.py restarts the daemon 20 times under 500 clients. w_run.py lets
# agentboxctl run die in each of three ways, 100 times each. j_judges.py is the matrix of tests/judges: older SDKs, the E2B command
# line and programs built on them; installing them takes some minutes the first time. g_control.py is the gateway: 100 processes of 20
# calls with the connections they take to the cloud, and AgentBox's SDK through it. g_shows.py has 200 creates of two users at a cloud
# with 20 places, as root, and a page of another origin in Chromium.
#
#   sh tests/shows.sh [PYTEST-OPTION…]      for example: -k tmux
set -eu
cd "$(dirname "$0")/.."
sh tests/setup.sh test
[ -f build/build.ninja ] || meson setup build >/dev/null
ninja -C build --quiet
sh tests/it/npm/install.sh
sh tests/it/pypi/install.sh
sh tests/it/abox/install.sh
sh tests/judges/install.sh
BUILD_DIR=$PWD/build SHOWS_FULL=1 RUNS=100 exec /usr/bin/python3 -m pytest tests/it/c_shows.py tests/it/d_shows.py tests/it/a_memory.py \
	tests/it/f_list.py tests/it/i_goproxy.py tests/it/s_story.py tests/it/s_filter.py tests/it/j_judges.py tests/it/y_restart.py tests/it/w_run.py \
	tests/it/g_control.py tests/it/g_shows.py -q -s --durations=0 "$@"
