#!/usr/bin/env bash
# Prepares for `cmake --preset portable`: builds static libraries into .cache/portable, from the
# distribution's own source packages, of what it has none of (sentencepiece) or only one that needs
# shared ones (libcurl with Kerberos and LDAP, libzmq with Kerberos and multicast). Does nothing when
# they are there.
# usage: tools/setup_portable.sh
set -euo pipefail

cd "$(dirname "$0")/.."
target=$PWD/.cache/portable
libraries=(libcurl.a libzmq.a libsentencepiece.a)
is_complete() {
  local library
  for library in "${libraries[@]}"; do [ -f "$target/lib/$library" ] || return 1; done
}
if is_complete; then exit 0; fi

tools/setup.sh
mkdir -p "$target/sources/parts" "$target/sources/lists/partial"
log=$target/setup.log
: >"$log"
fail() {
  tail -n 20 "$log" >&2
  echo "setup_portable: $1 failed, the whole output is in $log" >&2
  exit 1
}

# The sources of the packages that this system installs: its own list, read for sources.
apt=(apt-get -qq -o Dir::Etc::sourcelist="$target/sources/parts/list"
  -o Dir::Etc::sourceparts="$target/sources/parts" -o Dir::State::Lists="$target/sources/lists")
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
  if [ -f "$file" ]; then
    sed 's/^Types:.*/Types: deb-src/' "$file" >"$target/sources/parts/$(basename "$file")"
  fi
done
if [ -f /etc/apt/sources.list ]; then
  sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$target/sources/parts/list"
else
  : >"$target/sources/parts/list"
fi

echo "setup_portable: fetching sources" >&2
(
  cd "$target/sources"
  "${apt[@]}" update && "${apt[@]}" source curl zeromq3 sentencepiece
) >>"$log" 2>&1 || fail "fetching sources"

# Debian's package leaves the static library out.
patch=$(find "$target"/sources/sentencepiece-*/debian/patches -name disable-static-library.patch)
if [ -n "$patch" ]; then
  patch -R -s -p1 -d "$(dirname "$patch")/../.." <"$patch" >>"$log" 2>&1 ||
    fail "changing sentencepiece"
fi

# build SOURCE TARGET OPTIONS...
build() {
  local source=$1 library=$2
  shift 2
  echo "setup_portable: building $source" >&2
  {
    cmake -G Ninja -S "$(echo "$target"/sources/"$source"-*/)" -B "$target/build/$source" \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DCMAKE_CXX_FLAGS=-march=x86-64-v2 -DCMAKE_C_FLAGS=-march=x86-64-v2 "$@" &&
      ninja -C "$target/build/$source" "$library"
  } >>"$log" 2>&1 || fail "building $source"
}

# What downloads from a model hub take: HTTP over TLS, proxies, ranges.
build curl libcurl -DBUILD_SHARED_LIBS=OFF -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DHTTP_ONLY=ON \
  -DCURL_USE_OPENSSL=ON -DCURL_USE_GSSAPI=OFF -DCURL_USE_LIBSSH2=OFF -DCURL_USE_LIBPSL=OFF \
  -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DCURL_ZLIB=OFF -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF \
  -DUSE_LIBRTMP=OFF -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none -DCURL_CA_FALLBACK=ON
build zeromq3 libzmq-static -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_PERF_TOOL=OFF \
  -DWITH_DOCS=OFF -DENABLE_CURVE=OFF -DWITH_LIBSODIUM=OFF -DWITH_LIBBSD=OFF -DENABLE_WS=OFF \
  -DZMQ_BUILD_TESTS=OFF -DWITH_TLS=OFF
build sentencepiece sentencepiece-static -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF

mkdir -p "$target/lib"
for library in "${libraries[@]}"; do
  file=$(find "$target/build" -name "$library" | head -n 1)
  [ -n "$file" ] || fail "finding $library"
  cp "$file" "$target/lib/"
done
rm -rf "$target/build" "$target/sources"
