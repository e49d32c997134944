#!/usr/bin/env bash
# Builds XGrammar, which no distribution has, as a static library in .cache/xgrammar from its source
# package. Does nothing when it is there. Takes about two minutes of two cores.
# usage: tools/setup_xgrammar.sh
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

version=0.2.8
hash=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
# Of what is built how: another library is built when it changes.
build=2

cd "$(dirname "$0")/.."
root=$PWD/.cache/xgrammar
stamp=$root/built-$version-$build
[ ! -e "$stamp" ] || exit 0

echo "setup: building XGrammar $version in .cache/xgrammar" >&2
rm -rf "$root"
mkdir -p "$root/lib" "$root/include" "$root/objects"
log=$root/setup.log
fail() {
  tail -n 20 "$log" >&2
  echo "setup: $1 failed, the whole output is in $log" >&2
  exit 1
}

{
  python3 -m venv "$root/venv" &&
    echo "xgrammar==$version --hash=sha256:$hash" >"$root/requirements.txt" &&
    "$root/venv/bin/pip" download --disable-pip-version-check --no-deps --no-binary xgrammar \
      --require-hashes -r "$root/requirements.txt" -d "$root"
} >"$log" 2>&1 || fail "fetching xgrammar==$version"
{
  tar -xzf "$root/xgrammar-$version.tar.gz" -C "$root" &&
    mv "$root/xgrammar-$version" "$root/source" &&
    patch -d "$root/source" -p1 <tools/xgrammar.patch
} >>"$log" 2>&1 || fail "unpacking xgrammar==$version"

# Without the bindings, and as plain as atom's own code: one library for all presets.
compiler=g++
if command -v ccache >/dev/null; then compiler="ccache g++"; fi
flags="-std=c++17 -O2 -DNDEBUG -fPIC -march=x86-64-v2 -w -DXGRAMMAR_ENABLE_CPPTRACE=0
  -DXGRAMMAR_ENABLE_INTERNAL_CHECK=0 -DXGRAMMAR_LOG_CUSTOMIZE=1 -Iinclude -I3rdparty/picojson
  -I3rdparty/dlpack/include"
export compiler flags
(
  cd "$root/source"
  # The largest first.
  find cpp -name '*.cc' ! -path 'cpp/tvm_ffi/*' -printf '%s %p\n' | sort -rn | cut -d' ' -f2 |
    xargs -P "$(nproc)" -I{} sh -c \
      '$compiler $flags -c "$1" -o "../objects/$(echo "$1" | tr / _).o" || exit 255' _ {}
  ar rcs ../lib/libxgrammar.a ../objects/*.o
  cp -r include/xgrammar 3rdparty/dlpack/include/dlpack ../include/
) >>"$log" 2>&1 || fail "building XGrammar"
cp "$root/source/LICENSE" "$root/source/NOTICE" "$root/"
rm -rf "$root/venv" "$root/source" "$root/objects" "$root"/xgrammar-*.tar.gz "$root/requirements.txt"
touch "$stamp"
