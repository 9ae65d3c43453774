#!/bin/sh
# SPDX-License-Identifier: MIT
#
# More of the simulation than a test run has time for.
#
#   sh tests/sim/long.sh CRASHES [FIRST-SEED]     first seed: of the clock, so that each run is another
#
# A violation prints its seed; `build/tests/sim/sim --seed N --trace` shows it again.
set -eu
cd "$(dirname "$0")/../.."
sh tests/setup.sh build
build=${BUILD_DIR:-build}
[ -f "$build/build.ninja" ] || meson setup "$build" >/dev/null
ninja -C "$build" tests/sim/sim >/dev/null
exec "$build/tests/sim/sim" --cycles "${1:-20000}" --seed "${2:-$(($(date +%s) * 1000))}"
