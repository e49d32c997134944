# CUDA as a language, the runtime to link, and cuBLASLt's header. The library itself is opened when
# the program runs, so that one build serves machines with and without it.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Generic kernels: Ampere and up, by PTX on what comes after.
  set(CMAKE_CUDA_ARCHITECTURES "80;90-real")
endif()
set(ATOM_CUDA_SM90_ARCHITECTURES "90a-real")

enable_language(CUDA)
# With a space: ccache then makes these paths relative too.
set(CMAKE_INCLUDE_SYSTEM_FLAG_CUDA "-isystem ")
# CMake before 3.26 does not know that nvcc does C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
find_package(CUDAToolkit REQUIRED)
if(ATOM_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${ATOM_COMPILER_LAUNCHER}")
endif()
set(ATOM_CUDA_FLAGS --expt-relaxed-constexpr -Xcompiler=-Wall)

find_path(CUBLASLT_INCLUDE_DIR cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS}
  PATHS "${CMAKE_SOURCE_DIR}/.cache/cuda/nvidia/cu13/include"
  NO_DEFAULT_PATH)
if(NOT CUBLASLT_INCLUDE_DIR)
  message(FATAL_ERROR "cublasLt.h was not found: run tools/setup.sh --cuda")
endif()

# The CUDA part of a module's library.
function(add_cuda_sources target)
  target_compile_definitions(${target} PRIVATE ATOM_CUDA)
  target_include_directories(${target} SYSTEM PRIVATE
    ${CUDAToolkit_INCLUDE_DIRS} "${CUBLASLT_INCLUDE_DIR}")
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${ATOM_CUDA_FLAGS}>")
  set(hopper_sources)
  set(large_sources)
  foreach(source IN LISTS ARGN)
    get_source_file_property(is_large ${source} ATOM_LARGE_SHARED_MEMORY)
    if(source MATCHES "_sm90\\.cu$")
      list(APPEND hopper_sources ${source})
    elseif(is_large)
      list(APPEND large_sources ${source})
    endif()
  endforeach()
  add_cuda_objects(${target} sm90 "${ATOM_CUDA_SM90_ARCHITECTURES}" ${hopper_sources})
  # No card before Hopper has the memory; those after it take what the others' kernels are made of.
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^80$" "80-virtual" OUTPUT_VARIABLE architectures)
  add_cuda_objects(${target} large "${architectures}" ${large_sources})
endfunction()

# Compiles some of the target's sources for other architectures, which are a property of targets only.
function(add_cuda_objects target name architectures)
  if(NOT ARGN)
    return()
  endif()
  set(objects ${target}_${name})
  add_library(${objects} OBJECT ${ARGN})
  target_include_directories(${objects} PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${ATOM_CUDA_FLAGS}>")
  set_target_properties(${objects} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  get_target_property(sources ${target} SOURCES)
  list(REMOVE_ITEM sources ${ARGN})
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()
