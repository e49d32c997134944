#!/usr/bin/env bash
# Shows that each structure check passes on a good tree and fails on each kind of bad one, and that
# each tool says how it is used.
# usage: tests/tools_test.sh REPOSITORY
set -uo pipefail

tools=$(cd "$1" && pwd)/tools
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
num_failed=0

# A tree of two folders that passes every check.
fresh_tree() {
  rm -rf "$scratch/tree"
  mkdir -p "$scratch/tree/cmake" "$scratch/tree/src/base" "$scratch/tree/src/upper"
  cd "$scratch/tree" || exit 1
  cp "$tools/../.clang-format" .
  printf '0 base:\n1 tensor:\n2 other: base\n3 upper: base tensor/dtype.h\nsiblings upper: upper/blocks\n' \
    >cmake/layers.txt
  printf '#pragma once\nint low();\n' >src/base/low.h
  printf '#include "base/low.h"\n\nint low() {\n  return 1;\n}\n' >src/base/low.cc
  printf '#pragma once\nint up();\n' >src/upper/up.h
  printf '#include "upper/up.h"\n\n#include "base/low.h"\n\nint up() {\n  return low();\n}\n' \
    >src/upper/up.cc
  printf 'add_module(base SOURCES low.cc)\n' >src/base/CMakeLists.txt
  printf 'add_module(upper SOURCES up.cc TESTS up_test.cc)\n' >src/upper/CMakeLists.txt
}

run_check() {
  local check=$1
  shift
  case "$check" in
    layers) "$tools/check_layers.py" "$scratch/tree" ;;
    sizes) "$tools/check_sizes.py" "$scratch/tree" ;;
    format) "$tools/check_format.sh" "$scratch/tree/src" ;;
    threads) "$tools/check_threads.sh" "$scratch/tree" ;;
    hip) "$tools/check_hip.sh" --arch gfx90a "$scratch/tree" ;;
  esac
}

expect_pass() {
  if ! output=$(run_check "$1" 2>&1); then
    echo "FAILED: $1 refuses $2:"
    echo "$output"
    num_failed=$((num_failed + 1))
  fi
}

# expect_fail CHECK WHAT PATTERN: the check fails and says PATTERN.
expect_fail() {
  if output=$(run_check "$1" 2>&1); then
    echo "FAILED: $1 accepts $2"
    num_failed=$((num_failed + 1))
  elif ! grep -q -- "$3" <<<"$output"; then
    echo "FAILED: $1 on $2 does not say '$3':"
    echo "$output"
    num_failed=$((num_failed + 1))
  fi
}

repeat() { for _ in $(seq "$1"); do echo "$2"; done; }

fresh_tree
expect_pass layers "a good tree"
expect_pass sizes "a good tree"

fresh_tree
sed -i '1a #include "upper/up.h"' src/base/low.h
expect_fail layers "an include of a higher folder" \
  'src/base/low.h:2: base may not include upper/up.h; it may include: nothing of ours'

fresh_tree
sed -i '3a #include "tensor/dtype.h"' src/upper/up.cc
expect_pass layers "the one header of a folder that is allowed"
sed -i '3a #include "tensor/tensor.h"' src/upper/up.cc
expect_fail layers "another header of that folder" 'src/upper/up.cc:4: upper may not include'

fresh_tree
printf '#include "other/thing.h"\n' >src/upper/up_test.cc
expect_pass layers "a test that includes a lower folder"
printf '#include "upper/up.h"\n' >src/base/low_test.cc
sed -i 's/low.cc/low.cc low_test.cc/' src/base/CMakeLists.txt
expect_fail layers "a test that includes a higher folder" 'src/base/low_test.cc:1: base may not'

fresh_tree
sed -i '3a #include "upper/down.h"' src/upper/up.cc
expect_fail layers "a sibling's header" 'src/upper/up.cc:4: files of upper do not include each'

fresh_tree
sed -i '3a #include "upper/blocks/mlp.h"' src/upper/up.cc
expect_pass layers "the shared part of siblings"

fresh_tree
sed -i '3a #include "low.h"' src/base/low.cc
expect_fail layers "an include that is not from src" 'not written from src/'

fresh_tree
echo '#ifdef __AVX2__' >>src/upper/up.cc
expect_fail layers "an instruction set in ordinary code" 'src/upper/up.cc:8: #if on a vendor'
mv src/upper/up.cc src/upper/up_avx2.cc
sed -i 's/up.cc/up_avx2.cc/' src/upper/CMakeLists.txt
sed -i '1d' src/upper/up_avx2.cc
expect_pass layers "an instruction set in a file for it"

# An instruction set's file that reaches a C++ header through a header of ours.
sed -i '1i #include "base/low.h"' src/upper/up_avx2.cc
sed -i '1a #include <vector>' src/base/low.h
expect_fail layers "inline C++ in a file for an instruction set" \
  'up_avx2.cc:1: .* includes <vector> through src/base/low.h:2'

fresh_tree
echo 'const char* home() { return std::getenv("HOME"); }' >>src/base/low.cc
expect_fail layers "the environment read outside base/env.cc" 'src/base/low.cc:6: the environment'

fresh_tree
sed -i '1a #include <nlohmann/json.hpp>' src/base/low.h
expect_fail layers "a heavy header" 'json_fwd'

fresh_tree
sed -i '1d' src/base/low.h
expect_fail layers "a header without a guard" 'src/base/low.h:1: header without #pragma once'

fresh_tree
cp src/base/low.cc src/base/forgotten.cc
expect_fail layers "a source that is not built" 'src/base/forgotten.cc:1: no CMakeLists.txt names'

fresh_tree
repeat 800 '// a line' >src/base/low.cc
expect_pass sizes "a file at the limit"
echo '// a line' >>src/base/low.cc
expect_fail sizes "a file over the limit" 'src/base/low.cc:1: 801 lines'

fresh_tree
{ echo 'int f() {'; repeat 118 '  g("{");'; echo '}'; } >src/base/low.cc
expect_pass sizes "a function at the limit"
{ echo 'Pool::Pool(int n) : a_{n}, b_(n) {'; repeat 119 "  g('}');"; echo '}'; } >src/base/low.cc
expect_fail sizes "a function over the limit" 'src/base/low.cc:1: Pool::Pool has 121 lines'

fresh_tree
printf '// %0100d\n' 1 >src/base/low.cc
expect_fail sizes "a line over the limit" 'src/base/low.cc:1: 103 columns'

if command -v clang-format-14 >/dev/null; then
  fresh_tree
  expect_pass format "a good tree"
  echo 'int  odd( ) ;' >>src/base/low.h
  expect_fail format "a file that is not formatted" 'low.h:3'
fi

if command -v clang++ >/dev/null; then
  fresh_tree
  cp "$tools"/../src/base/{mutex,thread_annotations}.h src/base
  printf '#pragma once\n#include "base/mutex.h"\nclass C {\n  void f();\n  atom::Mutex m;\n%s\n};\n' \
    '  int x GUARDED_BY(m) = 0;' >src/base/low.h
  printf '#include "base/low.h"\n\nvoid C::f() {\n  atom::MutexLock lock(&m);\n  ++x;\n}\n' \
    >src/base/low.cc
  expect_pass threads "a member that is touched under its mutex"
  sed -i '/MutexLock/d' src/base/low.cc
  expect_fail threads "a member that is touched without its mutex" "requires holding mutex 'm'"
  sed -i 's/++x;/static std::mutex n;/' src/base/low.cc
  expect_fail threads "a mutex of the standard library" 'src/base/low.cc:4:.*std::mutex n'
fi

# A compiler of some HIP version that refuses sources with the word BROKEN.
cat >"$scratch/hipcc" <<'SCRIPT'
#!/bin/sh
case "$*" in
  *--version*) echo "clang version 1.0" ;;
  *" -E "*) echo "version ${HIP_VERSION_OF_TEST:-6 3}" ;;
  *)
    while [ "$1" != -c ]; do shift; done
    if grep BROKEN "$2"; then echo "error: BROKEN" >&2; exit 1; fi
    echo object >"$4"
    ;;
esac
SCRIPT
chmod +x "$scratch/hipcc"

# Two folders with a generic kernel each, and in one of them a kernel with PTX in a header's header.
fresh_kernels() {
  fresh_tree
  printf '__global__ void low() {}\n' >src/base/low_cuda.cu
  cp src/base/low_cuda.cu src/upper/up_cuda.cu
  printf '#include "upper/outer.cuh"\n' >src/upper/fast_cuda.cu
  printf '#include "upper/inner.cuh"\n' >src/upper/outer.cuh
  printf 'inline void nap() { asm volatile("nanosleep.u32 1;"); }\n' >src/upper/inner.cuh
}

export HIPCXX=$scratch/hipcc
fresh_kernels
expect_pass hip "kernels that compile"
for line in 'ok .*src/base/low_cuda.cu' 'ok .*src/upper/up_cuda.cu' \
  'left out  src/upper/fast_cuda.cu (PTX in src/upper/inner.cuh)' ' 2 files for gfx90a, 0 problems'; do
  if ! grep -q -- "$line" <<<"$output"; then
    echo "FAILED: hip does not say '$line':"
    echo "$output"
    num_failed=$((num_failed + 1))
  fi
done
echo '// BROKEN' >>src/upper/up_cuda.cu
expect_fail hip "a kernel that does not compile" 'FAILED    src/upper/up_cuda.cu'
fresh_kernels
rm src/upper/up_cuda.cu
expect_fail hip "a folder of NVIDIA's kernels alone" 'src/upper: no kernel without PTX'
fresh_tree
expect_fail hip "a tree without kernels" 'no \*_cuda.cu'
fresh_kernels
export HIP_VERSION_OF_TEST="6 2"
expect_fail hip "an old ROCm" 'HIP 6.2 is too old'
HIPCXX=$scratch/none
expect_fail hip "a machine without ROCm" 'no HIP compiler .*none'
unset HIPCXX HIP_VERSION_OF_TEST

# Two replays of a step of two kernels, and one that is not recorded.
cat >"$scratch/launches" <<'LOG'
100 200 0 1 32 8 other
1000 3000 7 132 256 64 first
2500 4000 7 8 128 32 second
5000 7400 7 132 256 64 first
6900 8800 7 8 128 32 second
LOG
shown=$("$tools/show_launches.py" "$scratch/launches")
for line in "2 replays of 2 launches, 3.4 us" "takes     2.20 early     0.00  132 x 256" \
  "1 adds     1.20 takes     1.70 early     0.50  8 x 128, 32 registers  second"; do
  if ! grep -qF "$line" <<<"$shown"; then
    echo "FAILED: show_launches.py does not say '$line':"
    echo "$shown"
    num_failed=$((num_failed + 1))
  fi
done

# What a tool says of itself costs nothing and changes nothing.
for tool in "$tools"/*.sh "$tools"/*.py; do
  if ! output=$(cd "$scratch" && timeout 10 "$tool" --help 2>&1) ||
    ! grep -q "^usage: tools/${tool##*/}" <<<"$output"; then
    echo "FAILED: ${tool##*/} --help does not say its usage:"
    echo "$output"
    num_failed=$((num_failed + 1))
  fi
done

if [ "$num_failed" -gt 0 ]; then exit 1; fi
echo "every structure check passes on a good tree and fails on bad ones, and every tool has a help"
