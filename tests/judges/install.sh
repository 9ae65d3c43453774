#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs clients of others below build/judges, each version in a folder of its own: Python packages in virtual environments, npm's
# with its own node_modules. Prints a line for each: "have FOLDER", or "skip FOLDER: REASON" where it is not to be had here.
#
#   sh tests/judges/install.sh NAME…    pypi-VERSION, npm-VERSION (of e2b), abox-VERSION, cli-VERSION,
#                                       openai-agents, langchain-e2b, harbor
#   sh tests/judges/install.sh          all of versions.txt
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$here/../..
judges=$root/build/judges
mkdir -p "$judges" || exit 1
judges=$(cd "$judges" && pwd)

# python_of LOWEST: a Python of at least this version (3.N)
python_of() {
	for p in /usr/bin/python3 python3 "${HOME:-/root}"/.pyenv/versions/3.1[0-9]*/bin/python3; do
		"$p" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$1'.split('.'))))" 2>/dev/null && echo "$p" && return 0
	done
	return 1
}

# with_pip FOLDER LOWEST PACKAGE…: a virtual environment
with_pip() {
	folder=$judges/$1 lowest=$2
	shift 2
	[ "$(cat "$folder/.installed" 2>/dev/null)" != "$*" ] || return 0
	python=$(python_of "$lowest") || { reason="it needs Python $lowest"; return 1; }
	rm -rf "$folder"
	"$python" -m venv "$folder" >"$folder.log" 2>&1 &&
		timeout 300 "$folder/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 20 \
			--only-binary :all: "$@" </dev/null >>"$folder.log" 2>&1 || {
		reason="not installed: $(grep -v '^ *$' "$folder.log" | tail -n 1 | cut -c 1-120)"
		rm -rf "$folder"
		return 1
	}
	echo "$*" >"$folder/.installed"
}

# with_npm FOLDER PACKAGE…
with_npm() {
	folder=$judges/$1
	shift
	[ "$(cat "$folder/.installed" 2>/dev/null)" != "$*" ] || return 0
	command -v npm >/dev/null 2>&1 || { reason="there is no npm"; return 1; }
	rm -rf "$folder"
	mkdir -p "$folder"
	echo '{"private":true}' >"$folder/package.json"
	(cd "$folder" && timeout 300 npm install --no-audit --no-fund --no-package-lock --loglevel=error --fetch-retries=1 \
		--fetch-timeout=20000 "$@" </dev/null) >"$folder.log" 2>&1 || {
		reason="not installed: $(grep -v '^ *$' "$folder.log" | head -n 1 | cut -c 1-120)"
		rm -rf "$folder"
		return 1
	}
	echo "$*" >"$folder/.installed"
}

one() {
	case $1 in
	pypi-*) with_pip "$1" 3.9 "e2b==${1#pypi-}" ;;
	abox-*) with_pip "$1" 3.10 "abox-sdk==${1#abox-}" ;;
	npm-*) with_npm "$1" "e2b@${1#npm-}" ;;
	cli-*) with_npm "$1" "@e2b/cli@${1#cli-}" ;;
	openai-agents) with_pip "$1" 3.10 openai-agents==0.24.0 e2b==2.63.0 e2b-code-interpreter==2.11.5 ;;
	langchain-e2b) with_pip "$1" 3.11 langchain-e2b==0.0.6 ;;
	harbor) with_pip "$1" 3.12 'harbor[e2b]==0.25.0' ;;
	*)
		reason="there is no such judge"
		return 1
		;;
	esac
}

[ $# -gt 0 ] || set -- $(grep -v '^#' "$here/versions.txt")
for name in "$@"; do
	if one "$name"; then
		echo "have $judges/$name"
	else
		echo "skip $name: $reason"
	fi
done
