#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Writes packaging/debian/libagentbox0.symbols anew from client/libagentbox.map. A function that was in it keeps its version, a new one gets
# the project's.
#
#   sh packaging/symbols.sh
set -eu
export LC_ALL=C
cd "$(dirname "$0")/.."
list=packaging/debian/libagentbox0.symbols
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)
{
	sed -n '/^ /!p' "$list"
	{
		echo LIBAGENTBOX_0
		sed -n 's/^\t\(ab_[a-z_0-9]*\);$/\1/p' client/libagentbox.map
	} | sort | while read -r name; do
		had=$(sed -n "s/^ $name@LIBAGENTBOX_0 //p" "$list")
		echo " $name@LIBAGENTBOX_0 ${had:-$version}"
	done
} >"$list.new"
mv "$list.new" "$list"
