// One spelling of the GPU runtime for CUDA and HIP. Included by files that are compiled only when a
// GPU runtime is there; nothing else in the tree asks which vendor it is.
#pragma once

#if defined(__HIP_PLATFORM_AMD__)

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

using gpuError_t = hipError_t;
using gpuStream_t = hipStream_t;
using gpuEvent_t = hipEvent_t;
using gpu_bfloat16 = __hip_bfloat16;
using gpu_bfloat162 = __hip_bfloat162;

#define ATOM_GPU(name) hip##name

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

using gpuError_t = cudaError_t;
using gpuStream_t = cudaStream_t;
using gpuEvent_t = cudaEvent_t;
using gpu_bfloat16 = __nv_bfloat16;
using gpu_bfloat162 = __nv_bfloat162;

// ATOM_GPU(MemcpyAsync) is cudaMemcpyAsync or hipMemcpyAsync.
#define ATOM_GPU(name) cuda##name

#endif
