# FlashInfer's headers, and CUTLASS's that come with them, for a benchmark that compares its attention
# with ours. Nothing that is installed or run by users is built with them.
set(ATOM_FLASHINFER_DIR "${CMAKE_SOURCE_DIR}/.cache/flashinfer/flashinfer/data" CACHE PATH
  "The folder flashinfer/data of the wheel flashinfer-python 0.6.8")
if(NOT ATOM_CUDA OR NOT ATOM_BUILD_BENCH)
  message(FATAL_ERROR "ATOM_FLASHINFER is for a GPU benchmark: it needs ATOM_CUDA and ATOM_BUILD_BENCH")
endif()
foreach(header include/flashinfer/attention/hopper/prefill_sm90.cuh cutlass/include/cute/tensor.hpp)
  if(NOT EXISTS "${ATOM_FLASHINFER_DIR}/${header}")
    message(FATAL_ERROR
      "${ATOM_FLASHINFER_DIR}/${header} was not found: run tools/setup.sh --flashinfer, "
      "or set ATOM_FLASHINFER_DIR")
  endif()
endforeach()

# The sources that include them, for Hopper, with the flags that FlashInfer compiles its kernels with.
function(add_flashinfer_library target)
  add_library(${target} STATIC ${ARGN})
  set_target_properties(${target} PROPERTIES
    CUDA_ARCHITECTURES "${ATOM_CUDA_SM90_ARCHITECTURES}")
  target_include_directories(${target} SYSTEM PRIVATE
    "${ATOM_FLASHINFER_DIR}/include" "${ATOM_FLASHINFER_DIR}/cutlass/include")
  target_compile_definitions(${target} PRIVATE
    CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED FLASHINFER_ENABLE_F16 FLASHINFER_ENABLE_BF16
    FLASHINFER_ENABLE_FP8_E4M3 FLASHINFER_ENABLE_FP8_E5M2 FLASHINFER_ENABLE_FP8_E8M0
    FLASHINFER_ENABLE_FP4_E2M1)
  target_compile_options(${target} PRIVATE --expt-relaxed-constexpr -use_fast_math)
endfunction()
