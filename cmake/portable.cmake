# Static libraries in place of the shared ones that were found, so that one file runs on any x86-64
# Linux whose glibc is at least the builder's. Sources are compiled as for the shared ones, whose
# headers they use, so that objects are those of the other presets. What stays shared: glibc, and
# what is opened when the program runs, the GPU's driver and cuBLASLt.

# The file's library instead of the target's. Static ones from .cache/portable come first:
# tools/setup_portable.sh builds what the distribution lacks.
function(link_statically target file)
  find_library(ATOM_STATIC_${file} ${file} HINTS "${CMAKE_SOURCE_DIR}/.cache/portable/lib")
  if(NOT ATOM_STATIC_${file})
    message(FATAL_ERROR "${file} was not found: run tools/setup_portable.sh")
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${ATOM_STATIC_${file}}")
  else()
    foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE)
      set_target_properties(${target} PROPERTIES ${property} "${ATOM_STATIC_${file}}")
    endforeach()
  endif()
  target_link_libraries(${target} INTERFACE ${ARGN})
endfunction()

link_statically(OpenSSL::Crypto libcrypto.a ${CMAKE_DL_LIBS} Threads::Threads)
link_statically(OpenSSL::SSL libssl.a OpenSSL::Crypto)
link_statically(CURL::libcurl libcurl.a OpenSSL::SSL)
link_statically(fmt::fmt libfmt.a)
link_statically(spdlog::spdlog libspdlog.a fmt::fmt)
link_statically(PkgConfig::zmq libzmq.a Threads::Threads)
link_statically(PkgConfig::xxhash libxxhash.a)
link_statically(PkgConfig::utf8proc libutf8proc.a)
link_statically(PkgConfig::pcre2 libpcre2-8.a)
link_statically(PkgConfig::sentencepiece libsentencepiece.a)

# Archives are where they were linked from, not where they are to be found.
set(CMAKE_SKIP_RPATH ON)
add_link_options(-static-libstdc++ -static-libgcc)
