# Static libraries in place of shared ones, so that one file runs on any x86-64 Linux whose glibc is at
# least the builder's. What stays shared: glibc, the GPU's driver, and cuBLASLt, which is opened when
# the program runs.
set(portable_libraries "${CMAKE_SOURCE_DIR}/.cache/portable/lib")
if(NOT EXISTS "${portable_libraries}/libsentencepiece.a")
  message(FATAL_ERROR "Static libraries are missing: run tools/setup_portable.sh")
endif()

# Headers are the distribution's; the libraries are built from the same packages' sources.
function(add_portable_library target file)
  find_library(ATOM_PORTABLE_${file} ${file} REQUIRED HINTS "${portable_libraries}")
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${ATOM_PORTABLE_${file}}")
endfunction()

set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL REQUIRED)

# Headers alone: the distribution has no static library of these two.
add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
add_library(spdlog::spdlog INTERFACE IMPORTED GLOBAL)
target_compile_definitions(spdlog::spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)

add_portable_library(CURL::libcurl libcurl.a)
target_link_libraries(CURL::libcurl INTERFACE OpenSSL::SSL OpenSSL::Crypto)
add_portable_library(PkgConfig::zmq libzmq.a)
target_link_libraries(PkgConfig::zmq INTERFACE Threads::Threads)
add_portable_library(PkgConfig::xxhash libxxhash.a)
add_portable_library(PkgConfig::utf8proc libutf8proc.a)
add_portable_library(PkgConfig::pcre2 libpcre2-8.a)
add_portable_library(PkgConfig::sentencepiece libsentencepiece.a)
target_include_directories(PkgConfig::sentencepiece INTERFACE "${SENTENCEPIECE_INCLUDE_DIR}")

add_link_options(-static-libstdc++ -static-libgcc)
