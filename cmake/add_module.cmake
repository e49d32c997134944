# add_module(<name> [COLD] SOURCES a.cc ... [CUDA_SOURCES a.cu ...] [SOURCES_WITHOUT_CUDA a.cc ...]
#            [ALONE a.cc ...] [TOGETHER a.cc ...] [DEPS module ...] [LIBS target ...] [TESTS a_test.cc ...]
#            [TEST_DEPS module ...] [BENCHES a_bench.cc ...] [FUZZERS a_fuzz.cc ...]
#            [FUZZ_SOURCES a.cc ...] [FUZZ_DEPS module ...])
#
# CUDA_SOURCES (.cu, and .cc that include tensor/gpu_api.h) are compiled with ATOM_CUDA=ON only, and
# the folder's rows of variants then name them; SOURCES_WITHOUT_CUDA otherwise. `_sm90.cu` files are
# compiled for Hopper alone; those with the property ATOM_LARGE_SHARED_MEMORY, set before, are not
# assembled for cards that lack it.
#
# COLD is for what runs once when a program starts, or waits for people and networks: it is compiled
# with -O1, which takes a fifth to a third of its time off. So are tests: their time is that of what
# they call.
#
# One library `atom_<name>` per folder, with explicit sources. TESTS make one executable
# `<name>_test`, registered with ctest under that name; every BENCHES and FUZZERS file makes an
# executable of its own. Sanitizers multiply the time of compiling: FUZZERS that need few of a
# folder's SOURCES are made of those alone, FUZZ_SOURCES and FUZZ_DEPS, without the library.
# Most of what a source file costs the compiler are the headers that it shares with its neighbors:
# several files of a folder are compiled as one unit (ATOM_UNITY), so that names in their anonymous
# namespaces have to differ. Files named by ALONE, the host files of a GPU's kernels, and those with
# flags of their own (the kernels of an instruction set) are compiled by themselves; those named by
# TOGETHER, and nowhere else, are a unit. A unit names its files from src/ on, unlike those of CMake,
# so that checkouts share a compiler cache.
function(compile_in_batches target)
  cmake_parse_arguments(B "" "" "ALONE;TOGETHER" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  set(alone ${sources})
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(avx2|avx512|amx)\\.cc$")
  list(REMOVE_ITEM sources "" ${B_ALONE})
  list(LENGTH sources num_sources)
  if(ATOM_UNITY LESS 2 OR num_sources LESS 2)
    return()
  endif()
  list(REMOVE_ITEM alone ${sources})
  list(REMOVE_ITEM sources "" ${B_TOGETHER})
  set(batch ${B_TOGETHER})
  set(units)
  while(sources OR batch)
    if(NOT batch)
      list(SUBLIST sources 0 ${ATOM_UNITY} batch)
      list(REMOVE_ITEM sources ${batch})
    endif()
    set(includes "")
    foreach(source IN LISTS batch)
      cmake_path(ABSOLUTE_PATH source)
      file(RELATIVE_PATH source "${CMAKE_SOURCE_DIR}/src" "${source}")
      string(APPEND includes "#include \"${source}\"\n")
    endforeach()
    list(LENGTH units number)
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/units/${target}_${number}.cc")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${includes}" @ONLY)
    list(APPEND units "${unit}")
    set(batch)
  endwhile()
  list(APPEND alone ${units})
  set_target_properties(${target} PROPERTIES SOURCES "${alone}")
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/src")
endfunction()

function(compile_as_cold target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

function(add_module name)
  cmake_parse_arguments(M "COLD" "" "SOURCES;CUDA_SOURCES;SOURCES_WITHOUT_CUDA;ALONE;TOGETHER;DEPS;LIBS;TESTS;TEST_DEPS;BENCHES;FUZZERS;FUZZ_SOURCES;FUZZ_DEPS" ${ARGN})
  set(target atom_${name})
  list(TRANSFORM M_DEPS PREPEND atom_)
  list(TRANSFORM M_TEST_DEPS PREPEND atom_)
  list(TRANSFORM M_FUZZ_DEPS PREPEND atom_)

  if(ATOM_CUDA)
    list(APPEND M_SOURCES ${M_CUDA_SOURCES})
  else()
    list(APPEND M_SOURCES ${M_SOURCES_WITHOUT_CUDA})
  endif()
  list(APPEND M_SOURCES ${M_TOGETHER})

  if(M_SOURCES)
    add_library(${target} STATIC ${M_SOURCES})
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}/src")
    target_link_libraries(${target} PUBLIC ${M_DEPS} ${M_LIBS})
    compile_in_batches(${target} ALONE ${M_ALONE} ${M_CUDA_SOURCES} TOGETHER ${M_TOGETHER})
    if(M_COLD)
      compile_as_cold(${target})
    endif()
    foreach(source IN LISTS M_SOURCES)
      if(source MATCHES "_avx2\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ATOM_AVX2_FLAGS}")
      elseif(source MATCHES "_avx512\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ATOM_AVX512_FLAGS}")
      elseif(source MATCHES "_amx\\.cc$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ATOM_AMX_FLAGS}")
      endif()
    endforeach()
    if(ATOM_CUDA AND M_CUDA_SOURCES)
      add_cuda_sources(${target} ${M_CUDA_SOURCES})
    endif()
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE "${CMAKE_SOURCE_DIR}/src")
    target_link_libraries(${target} INTERFACE ${M_DEPS} ${M_LIBS})
  endif()

  if(ATOM_BUILD_TESTS AND M_TESTS)
    add_executable(${name}_test ${M_TESTS})
    target_link_libraries(${name}_test PRIVATE ${target} ${M_TEST_DEPS} GTest::gtest_main)
    compile_in_batches(${name}_test ALONE ${M_ALONE})
    compile_as_cold(${name}_test)
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${ATOM_TEST_ENVIRONMENT}" TIMEOUT 900)
  endif()
  if(ATOM_BUILD_BENCH)
    foreach(source IN LISTS M_BENCHES)
      get_filename_component(executable ${source} NAME_WE)
      add_executable(${executable} ${source})
      target_link_libraries(
        ${executable} PRIVATE ${target} ${M_TEST_DEPS} benchmark::benchmark_main)
    endforeach()
  endif()
  if(ATOM_BUILD_FUZZ)
    foreach(source IN LISTS M_FUZZERS)
      get_filename_component(executable ${source} NAME_WE)
      add_executable(${executable} ${source} ${M_FUZZ_SOURCES})
      if(M_FUZZ_SOURCES)
        compile_in_batches(${executable} ALONE ${source} ${M_ALONE})
        target_link_libraries(${executable} PRIVATE ${M_FUZZ_DEPS} ${M_LIBS})
      else()
        target_link_libraries(${executable} PRIVATE ${target})
      endif()
      target_link_options(${executable} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
