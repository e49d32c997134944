#!/usr/bin/env bash
# Installs the client packages that the server's tests use, into .cache/clients: a Python
# environment and node_modules. Does nothing when they are there in the versions asked for.
# usage: tools/setup_clients.sh
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
cd "$(dirname "$0")/.."

target=.cache/clients
wanted=$(cat tests/server/requirements.txt tests/server/package.json | sha256sum | cut -d' ' -f1)
if [ "$(cat "$target/installed" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

echo "setup: installing the clients of the server's tests into $target" >&2
rm -rf "$target"
mkdir -p "$target/node"
log="$target/setup.log"
if ! {
  python3 -m venv "$target/python"
  "$target/python/bin/pip" install --disable-pip-version-check -r tests/server/requirements.txt
  cp tests/server/package.json "$target/node/"
  npm install --prefix "$target/node" --no-audit --no-fund
} >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: could not install the clients (the whole output is in $log)" >&2
  exit 1
fi
echo "$wanted" >"$target/installed"
