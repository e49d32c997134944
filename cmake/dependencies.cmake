find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq)
# zmq.h needs none of what libzmq itself was built with, and an option of one of those goes from the
# includes to the flags when CMake runs a second time, which would compile everything again.
set_target_properties(PkgConfig::zmq PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ""
  INTERFACE_COMPILE_OPTIONS "")
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
# Not through pkg-config: Ubuntu's file asks for protobuf's headers, which nothing here includes.
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
add_library(PkgConfig::sentencepiece INTERFACE IMPORTED GLOBAL)
target_link_libraries(PkgConfig::sentencepiece INTERFACE "${SENTENCEPIECE_LIBRARY}")
target_include_directories(PkgConfig::sentencepiece INTERFACE "${SENTENCEPIECE_INCLUDE_DIR}")
# Built by tools/setup.sh from its source package; no distribution has it. Always static.
set(XGRAMMAR_ROOT "${CMAKE_SOURCE_DIR}/.cache/xgrammar" CACHE PATH "Where XGrammar was built")
if(NOT EXISTS "${XGRAMMAR_ROOT}/lib/libxgrammar.a")
  message(FATAL_ERROR "XGrammar is not in ${XGRAMMAR_ROOT}: run tools/setup.sh")
endif()
add_library(XGrammar::xgrammar STATIC IMPORTED GLOBAL)
set_target_properties(
  XGrammar::xgrammar PROPERTIES
  IMPORTED_LOCATION "${XGRAMMAR_ROOT}/lib/libxgrammar.a"
  INTERFACE_INCLUDE_DIRECTORIES "${XGRAMMAR_ROOT}/include")
target_link_libraries(XGrammar::xgrammar INTERFACE Threads::Threads)
if(ATOM_PORTABLE)
  include(portable)
endif()
if(ATOM_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(ATOM_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()
