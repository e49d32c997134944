set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# The baseline every file is built for; faster instruction sets live in files of their own
# (`*_avx2.cc`, `*_avx512.cc`, `*_amx.cc`) that are picked when the program starts.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2;-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Werror;-fno-math-errno;-ffp-contract=off>")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # CHECK(a == b) takes the comparison apart with an operator<<, on purpose.
  add_compile_options(-Wno-overloaded-shift-op-parentheses)
  # What base/thread_annotations.h says of mutexes and what they guard.
  add_compile_options(-Wthread-safety)
endif()
if(ATOM_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A class of a .cc file may have members of its anonymous namespace; gcc takes the file for a header
  # when it is included by the unit it is compiled in.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
set(ATOM_AVX2_FLAGS -march=x86-64-v3)
set(ATOM_AVX512_FLAGS -march=x86-64-v4 -mavx512bf16 -mavx512vnni -mprefer-vector-width=512)
set(ATOM_AMX_FLAGS ${ATOM_AVX2_FLAGS} -mamx-tile -mamx-bf16 -mamx-int8)

if(ATOM_SANITIZE)
  add_compile_options(-fsanitize=${ATOM_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=undefined)
  # gcc's analysis sees uninitialized values in the code that a sanitizer adds to the library's.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${ATOM_SANITIZE})
endif()

# What makes a fault in memory harder to use, where it was measured to cost little (README.md).
# Not with sanitizers, which check more, and not unoptimized, where glibc's checks do nothing.
option(ATOM_HARDEN "Stack protector, checked libc calls, full RELRO" ON)
if(ATOM_HARDEN AND NOT ATOM_SANITIZE AND CMAKE_BUILD_TYPE MATCHES "^Rel")
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3;-fstack-protector-strong;-fstack-clash-protection>")
  add_link_options(LINKER:-z,relro,-z,now)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the checkout are taken relative to it, so that one cache serves every checkout,
  # wherever it lies.
  set(ATOM_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ATOM_COMPILER_LAUNCHER}")
endif()
