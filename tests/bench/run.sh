#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Measures agentboxd against peers in the same run and prints a table of ratios. Takes some minutes; a busy machine
# makes it say nonsense, which is why every figure is a ratio and its spread is shown.
#
#   sh tests/bench/run.sh [NAME…]      names: get small bulk first memory creates proxy many streams exit fanout leases owners gateway
#                                      growth reconcile (none: all)
#   sh tests/bench/run.sh --quick [NAME…]   an eighth of the calls and bytes; without names those that a change of the
#                                      daemon's speed shows in
#
# $BUILD_DIR names another build than build-release.
set -eu
cd "$(dirname "$0")/../.."
sh tests/setup.sh bench
# Built as the packages are: what is measured is what is installed.
BUILD_DIR=${BUILD_DIR:-build-release}
export BUILD_DIR
[ -f "$BUILD_DIR/build.ninja" ] || meson setup "$BUILD_DIR" -Dtests=false -Db_lto=true >/dev/null
ninja -C "$BUILD_DIR" --quiet
sh tests/it/npm/install.sh

out=$BUILD_DIR/bench
mkdir -p "$out"
if [ ! -x "$out/peer" ] || [ tests/bench/peer.cc -nt "$out/peer" ]; then
	protoc -I proto --cpp_out="$out" --grpc_out="$out" --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" \
		agentbox/v1/sandbox.proto google/rpc/status.proto
	# shellcheck disable=SC2046
	g++ -O2 -w -I "$out" -o "$out/peer" tests/bench/peer.cc "$out"/agentbox/v1/sandbox.pb.cc \
		"$out"/agentbox/v1/sandbox.grpc.pb.cc "$out"/google/rpc/status.pb.cc \
		$(pkg-config --cflags --libs grpc++ protobuf)
fi
if [ ! -x "$out/floor" ] || [ tests/bench/floor.c -nt "$out/floor" ]; then
	# shellcheck disable=SC2046
	gcc -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -o "$out/floor" tests/bench/floor.c \
		$(pkg-config --cflags --libs libnghttp2)
fi
exec /usr/bin/python3 tests/bench/bench.py "$@"
