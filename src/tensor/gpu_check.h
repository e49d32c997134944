// GPU_CHECK(cudaMalloc(...)): a runtime call that does not succeed ends the process with the
// runtime's message. For host files that are compiled only when a GPU runtime is there.
#pragma once

#include "base/check.h"
#include "tensor/gpu_api.h"

#define GPU_CHECK(call)                                                                  \
  do {                                                                                   \
    if (const gpuError_t error_ = (call); error_ != ATOM_GPU(Success)) {                 \
      ::atom::check_failed(#call, ATOM_GPU(GetErrorString)(error_), __FILE__, __LINE__); \
    }                                                                                    \
  } while (false)
