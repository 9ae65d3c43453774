#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs the Debian packages that are needed: "build" to build and run, "test" for the tests, "bench" for the benchmarks.
# Does nothing, and asks nobody, when all of them are there. Uses sudo when it is not run as root.
#
#   sh tests/setup.sh build|test|bench
set -eu

# To build and to run. util-linux and coreutils are in every Debian.
build_packages="
	gcc libc6-dev meson ninja-build pkg-config python3
	libevent-dev libnghttp2-dev libssl-dev libsqlite3-dev libjansson-dev libinih-dev zlib1g-dev
	libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libprotobuf-dev
	libevent-core-2.1-7 libnghttp2-14 libssl3 libsqlite3-0 libjansson4 libinih1 zlib1g libprotobuf-c1
"

# The second compiler, the judges and the tools of the tests.
test_packages="
	clang libclang-rt-14-dev binutils mandoc libhttp-parser-dev spin
	python3-pytest python3-pytest-timeout python3-pytest-xdist python3-pip python3-venv python3-h2 python3-grpcio
	python3-protobuf python3-jsonschema protobuf-compiler-grpc
	curl nodejs openssl ca-certificates nghttp2-client nghttp2-server patch procps
	nghttp2-proxy nginx-light tinyproxy-bin nftables iproute2 gdb tmux strace zsh fish
	systemd systemd-container dbus passwd debhelper dpkg-dev lintian
	busybox-static skopeo umoci zstd xz-utils bzip2 file
	prometheus python3-prometheus-client
"

# The peers of the benchmarks.
bench_packages="
	g++ libgrpc++-dev protobuf-compiler-grpc nghttp2-client nghttp2-proxy nginx-light openssl curl valgrind
	python3-grpcio python3-protobuf python3-h2
"

case "${1:-}" in
build) packages=$build_packages ;;
test) packages="$build_packages $test_packages" ;;
bench) packages="$build_packages $bench_packages" ;;
*)
	echo "usage: sh tests/setup.sh build|test|bench" >&2
	exit 2
	;;
esac

missing=
for p in $packages; do
	# shellcheck disable=SC2016
	state=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || :)
	[ "$state" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "setup: missing packages:$missing" >&2
		echo "setup: not root and no sudo here: have them installed, then run this again" >&2
		exit 1
	fi
	as_root=sudo
fi

echo "setup: installing:$missing"
export DEBIAN_FRONTEND=noninteractive
export LC_ALL=C.UTF-8
$as_root apt-get -q update
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing
