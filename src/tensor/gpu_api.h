// One spelling of the GPU runtime and of what kernels need of it, for CUDA and HIP. Included by
// files that are compiled only when a GPU runtime is there; nothing else in the tree asks which
// vendor it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/float8_bits.h"

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_fp8.h>
#include <hip/hip_runtime.h>

using gpuError_t = hipError_t;
using gpuStream_t = hipStream_t;
using gpuEvent_t = hipEvent_t;
using gpu_bfloat16 = __hip_bfloat16;
using gpu_bfloat162 = __hip_bfloat162;

#define ATOM_GPU(name) hip##name
// HIP's second bound is of waves per SIMD; one says nothing.
#define ATOM_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, (blocks) > 0)

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

using gpuError_t = cudaError_t;
using gpuStream_t = cudaStream_t;
using gpuEvent_t = cudaEvent_t;
using gpu_bfloat16 = __nv_bfloat16;
using gpu_bfloat162 = __nv_bfloat162;

// ATOM_GPU(MemcpyAsync) is cudaMemcpyAsync or hipMemcpyAsync.
#define ATOM_GPU(name) cuda##name
// Threads of a block at most, and blocks that a multiprocessor shall have room for at least.
#define ATOM_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)

#endif

namespace atom {

// How a kernel is launched. Where the runtime knows nothing of a hint, the launch goes without it;
// a kernel that needs clusters is not compiled there.
struct GpuLaunch {
  dim3 grid;
  dim3 block;
  size_t shared_size = 0;  // bytes of dynamic shared memory
  gpuStream_t stream = nullptr;
  bool overlaps_previous = false;  // programmatic dependent launch
  unsigned cluster_size = 1;       // blocks along x
};

#if defined(__HIPCC__)

// Bytes of shared memory that a block may have on every card.
constexpr size_t kGpuMaxSharedSize = 64 << 10;

template <typename... Parameters, typename... Arguments>
gpuError_t gpu_launch(const GpuLaunch& launch,
                      void (*kernel)(Parameters...),
                      Arguments&&... arguments) {
  kernel<<<launch.grid, launch.block, launch.shared_size, launch.stream>>>(
      std::forward<Arguments>(arguments)...);
  return hipGetLastError();
}

// A grid begins when the one before it has ended.
__device__ inline void gpu_wait_for_previous_grid() {}
__device__ inline void gpu_allow_next_grid() {}

// Of a clock that runs while the device sleeps, on the current device.
__device__ inline unsigned long long gpu_ticks() {
  return wall_clock64();
}
inline gpuError_t gpu_ticks_of(long long nanoseconds, long long* ticks) {
  int device = 0, kilohertz = 0;
  gpuError_t error = hipGetDevice(&device);
  if (error == hipSuccess) {
    error = hipDeviceGetAttribute(&kilohertz, hipDeviceAttributeWallClockRate, device);
  }
  *ticks = nanoseconds * kilohertz / 1000000;
  return error;
}

// Ends the process with an error of the runtime.
__device__ inline void gpu_trap() {
  __builtin_trap();
}

// Data that is used once.
template <typename T>
__device__ inline T gpu_load_once(const T* source) {
  return *source;
}
template <typename T>
__device__ inline void gpu_store_once(T* target, const T& value) {
  *target = value;
}
// What the grid before this one wrote: a first-level cache may have what was there earlier.
template <typename T>
__device__ inline T gpu_load_from_l2(const T* source) {
  return *source;
}

// Rounded each, and never fused with what the result is used for.
__device__ inline float gpu_add(float a, float b) {
#pragma clang fp contract(off)
  return a + b;
}
__device__ inline float gpu_subtract(float a, float b) {
#pragma clang fp contract(off)
  return a - b;
}
__device__ inline float gpu_multiply(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}

// Of each element of a pair; NaN only where both are.
__device__ inline __half2 gpu_larger_of(const __half2& a, const __half2& b) {
  return __halves2half2(__hmax(__low2half(a), __low2half(b)),
                        __hmax(__high2half(a), __high2half(b)));
}
__device__ inline gpu_bfloat162 gpu_larger_of(const gpu_bfloat162& a, const gpu_bfloat162& b) {
  return __hmax2(a, b);
}

// Among 32 neighboring lanes; a hardware wave may be two of them.
template <typename T>
__device__ inline T gpu_shuffle(T value, int lane) {
  return __shfl(value, lane, 32);
}
template <typename T>
__device__ inline T gpu_shuffle_xor(T value, int lane_mask) {
  return __shfl_xor(value, lane_mask, 32);
}
// A bit for each of the lanes.
__device__ inline uint32_t gpu_lanes_where(bool condition) {
  const auto lanes = __ballot(condition);
  return static_cast<uint32_t>(lanes >> (threadIdx.x % warpSize / 32 * 32));
}

// OCP e4m3, rounded to nearest even, saturating; in a pair `low` is in bits 0 to 7.
__device__ inline float gpu_float_of_float8(uint8_t bits) {
  return __half2float(__hip_cvt_fp8_to_halfraw(bits, __HIP_E4M3));
}
__device__ inline uint8_t gpu_float8_of(float x) {
  return __hip_cvt_float_to_fp8(x, __HIP_SATFINITE, __HIP_E4M3);
}
__device__ inline uint32_t gpu_float8_pair_of(float low, float high) {
  return gpu_float8_of(low) | uint32_t{gpu_float8_of(high)} << 8;
}

#elif defined(__CUDACC__)

// Bytes of shared memory that a block may have on every card.
constexpr size_t kGpuMaxSharedSize = 99 << 10;

template <typename... Parameters, typename... Arguments>
gpuError_t gpu_launch(const GpuLaunch& launch,
                      void (*kernel)(Parameters...),
                      Arguments&&... arguments) {
  cudaLaunchAttribute attributes[3]{};
  int count = 0;
  if (launch.cluster_size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {launch.cluster_size, 1, 1};
  }
  if (launch.overlaps_previous) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    // A multiprocessor divides its memory anew only when it is empty: kernels that shall overlap
    // have to agree.
    attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = launch.shared_size;
  config.stream = launch.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// Returns when the grid before this one has ended and its writes are visible.
__device__ inline void gpu_wait_for_previous_grid() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next grid may start once every block of this one has said so or has ended.
__device__ inline void gpu_allow_next_grid() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Of a clock that runs while the device sleeps, on the current device.
__device__ inline unsigned long long gpu_ticks() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}
inline gpuError_t gpu_ticks_of(long long nanoseconds, long long* ticks) {
  *ticks = nanoseconds;
  return cudaSuccess;
}

// Ends the process with an error of the runtime.
__device__ inline void gpu_trap() {
  __trap();
}

// Data that is used once.
template <typename T>
__device__ inline T gpu_load_once(const T* source) {
  return __ldcs(source);
}
template <typename T>
__device__ inline void gpu_store_once(T* target, const T& value) {
  __stcs(target, value);
}
// What the grid before this one wrote: a first-level cache may have what was there earlier.
template <typename T>
__device__ inline T gpu_load_from_l2(const T* source) {
  return __ldcg(source);
}

// Rounded each, and never fused with what the result is used for.
__device__ inline float gpu_add(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ inline float gpu_subtract(float a, float b) {
  return __fsub_rn(a, b);
}
__device__ inline float gpu_multiply(float a, float b) {
  return __fmul_rn(a, b);
}

// Of each element of a pair; NaN only where both are.
__device__ inline __half2 gpu_larger_of(const __half2& a, const __half2& b) {
  return __hmax2(a, b);
}
__device__ inline gpu_bfloat162 gpu_larger_of(const gpu_bfloat162& a, const gpu_bfloat162& b) {
  return __hmax2(a, b);
}

// Among 32 neighboring lanes; a hardware wave may be two of them.
template <typename T>
__device__ inline T gpu_shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <typename T>
__device__ inline T gpu_shuffle_xor(T value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
// A bit for each of the lanes.
__device__ inline uint32_t gpu_lanes_where(bool condition) {
  return __ballot_sync(0xffffffffu, condition);
}

// OCP e4m3, rounded to nearest even, saturating; in a pair `low` is in bits 0 to 7. Devices without
// an instruction for it compute it by float8_bits.h: what the library has for them is several times
// as long.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
__device__ inline float gpu_float_of_float8(uint8_t bits) {
  return float_of_float8_bits(bits);
}
__device__ inline uint8_t gpu_float8_of(float x) {
  return float8_bits_of(x);
}
__device__ inline uint32_t gpu_float8_pair_of(float low, float high) {
  return gpu_float8_of(low) | uint32_t{gpu_float8_of(high)} << 8;
}
#else
__device__ inline float gpu_float_of_float8(uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}
__device__ inline uint8_t gpu_float8_of(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline uint32_t gpu_float8_pair_of(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
#endif

#endif

}  // namespace atom
