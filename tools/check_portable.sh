#!/usr/bin/env bash
# Fails when an executable needs more of a machine than glibc, or a newer glibc than VERSION.
# usage: tools/check_portable.sh ATOM [VERSION]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  echo "usage: tools/check_portable.sh ATOM [VERSION]" >&2
  exit 2
fi
atom=$1
newest=${2:-2.36}

# What glibc consists of, and the loader.
allowed='^(libc|libm|libdl|libpthread|librt|libresolv|ld-linux-x86-64)\.so\.[0-9]+$'
needed=$(objdump -p "$atom" | awk '$1 == "NEEDED" { print $2 }')
if [ -z "$needed" ]; then
  echo "check_portable: $atom is no dynamic executable" >&2
  exit 1
fi
other=$(grep -vE "$allowed" <<<"$needed" || true)
if [ -n "$other" ]; then
  echo "check_portable: $atom needs libraries that other machines may lack:" >&2
  echo "$other" >&2
  exit 1
fi
version=$(objdump -T "$atom" | grep -o 'GLIBC_2\.[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
if [ "$(printf '%s\n' "$version" "$newest" | sort -V | tail -n 1)" != "$newest" ]; then
  echo "check_portable: $atom needs glibc $version, newer than $newest" >&2
  exit 1
fi
# It starts, with an environment of its own.
env -i "$atom" --version >/dev/null
echo "check_portable: $atom needs glibc $version alone"
