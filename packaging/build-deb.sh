#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the Debian packages, source and binary, of this tree as it is, and leaves them in FOLDER.
#
#   sh packaging/build-deb.sh [-v VERSION] [FOLDER]     default: build/deb
#
# VERSION, say 0.2.0-1~before, replaces the one of packaging/debian/changelog, for tests of an upgrade. What is built depends on the files
# and the version alone: two builds are equal byte by byte.
set -eu
umask 022
version=
while getopts v: o; do
	case $o in
	v) version=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-$top/build/deb}"
out=$(cd "${1:-$top/build/deb}" && pwd)

changelog=$top/packaging/debian/changelog
[ -n "$version" ] || version=$(dpkg-parsechangelog -l "$changelog" -S Version)
upstream=${version%-*}
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog -l "$changelog" -S Timestamp)
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC

work=$out/work	# always the same, for ccache
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
source=agentboxd-$upstream

# The files that git knows, changed or not; without git, all but what builds made.
list() {
	if git -C "$top" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$top" ls-files -co --exclude-standard
	else
		(cd "$top" && find . -name build\* -prune -o -name __pycache__ -prune -o \( -type f -o -type l \) -printf '%P\n')
	fi
}

pack() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C "$1" -cf - "$2"; }

mkdir "$work/$source"
(cd "$top" && list | while read -r f; do [ ! -e "$f" ] || printf '%s\n' "$f"; done | tar -cf - -T -) | tar -C "$work/$source" -xf -
pack "$work" "$source" | xz -T1 >"$work/agentboxd_$upstream.orig.tar.xz"
cp -R "$top/packaging/debian" "$work/$source/debian"
first=$(dpkg-parsechangelog -l "$changelog" -S Version)
sed -i "1s/($first)/($version)/" "$work/$source/debian/changelog"

cd "$work/$source"
dpkg-buildpackage -us -uc
cd ..
mv ./*.deb ./*.dsc ./*.xz ./*.changes ./*.buildinfo "$out"
