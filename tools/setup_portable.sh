#!/usr/bin/env bash
# Prepares for `cmake --preset portable`: builds static libraries into .cache/portable, from the
# distribution's own source packages, of what it has none of (sentencepiece, fmt, spdlog) or only one
# that needs shared ones (libcurl with Kerberos and LDAP, libzmq with Kerberos and multicast). Does
# nothing when they are there.
# usage: tools/setup_portable.sh
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

cd "$(dirname "$0")/.."
target=$PWD/.cache/portable
libraries=(libcurl.a libzmq.a libsentencepiece.a libfmt.a libspdlog.a)
missing=
for library in "${libraries[@]}"; do [ -f "$target/lib/$library" ] || missing=1; done
[ -n "$missing" ] || exit 0

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

"${apt[@]}" update >>"$log" 2>&1 || fail "reading the lists of source packages"

# build PACKAGE LIBRARY TARGET OPTIONS...: nothing when the library is there.
build() {
  local package=$1 library=$2 goal=$3 source patch
  shift 3
  [ ! -f "$target/lib/$library" ] || return 0
  echo "setup_portable: building $library" >&2
  (cd "$target/sources" && "${apt[@]}" source "$package") >>"$log" 2>&1 ||
    fail "fetching the sources of $package"
  source=$(find "$target/sources" -mindepth 1 -maxdepth 1 -type d -name "$package-*" | head -n 1)
  # Debian's package of sentencepiece leaves the static library out.
  patch=$source/debian/patches/disable-static-library.patch
  if [ -f "$patch" ]; then
    patch -R -s -p1 -d "$source" <"$patch" >>"$log" 2>&1 || fail "changing $package"
  fi
  {
    cmake -G Ninja -S "$source" -B "$target/build/$package" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_FLAGS=-march=x86-64-v2 \
      -DCMAKE_C_FLAGS=-march=x86-64-v2 "$@" &&
      ninja -C "$target/build/$package" "$goal" &&
      cp "$(find "$target/build/$package" -name "$library" | head -n 1)" "$target/lib/"
  } >>"$log" 2>&1 || fail "building $library"
}

mkdir -p "$target/lib"
# What downloads from a model hub take: HTTP over TLS, proxies, ranges.
build curl libcurl.a libcurl -DBUILD_SHARED_LIBS=OFF -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF \
  -DHTTP_ONLY=ON -DCURL_USE_OPENSSL=ON -DCURL_USE_GSSAPI=OFF -DCURL_USE_LIBSSH2=OFF \
  -DCURL_USE_LIBPSL=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DCURL_ZLIB=OFF -DUSE_LIBIDN2=OFF \
  -DUSE_NGHTTP2=OFF -DUSE_LIBRTMP=OFF -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none \
  -DCURL_CA_FALLBACK=ON
build zeromq3 libzmq.a libzmq-static -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_PERF_TOOL=OFF \
  -DWITH_DOCS=OFF -DENABLE_CURVE=OFF -DWITH_LIBSODIUM=OFF -DWITH_LIBBSD=OFF -DENABLE_WS=OFF \
  -DZMQ_BUILD_TESTS=OFF -DWITH_TLS=OFF
build sentencepiece libsentencepiece.a sentencepiece-static -DSPM_ENABLE_SHARED=OFF \
  -DSPM_ENABLE_TCMALLOC=OFF
build fmtlib libfmt.a fmt -DBUILD_SHARED_LIBS=OFF -DFMT_TEST=OFF -DFMT_DOC=OFF
build spdlog libspdlog.a spdlog -DSPDLOG_BUILD_SHARED=OFF -DSPDLOG_FMT_EXTERNAL=ON \
  -DSPDLOG_BUILD_EXAMPLE=OFF -DSPDLOG_BUILD_TESTS=OFF
rm -rf "$target/build" "$target/sources"
