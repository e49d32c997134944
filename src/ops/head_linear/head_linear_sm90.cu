// A warp has rows of a head's weight as left operands, straight from memory, and multiplies them by
// the tokens of a tile, which its block shares. The order of the inner dimension is free, so that a
// thread's 16 bytes of a row, of a token as of the weight, serve two steps of it. Sums ascend in k,
// whatever the tile.
#include "ops/head_linear/head_linear_sm90.cuh"

#include "ops/device/programmatic_launch.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace head_linear_device;

constexpr int kSwap = 4;  // of chunks

// kTiles: of 8 tokens. kRowTiles: of 16 rows that a warp has. grid: slices of the weight's rows,
// heads, tiles of tokens.
template <typename T, int kTiles, int kRowTiles>
__global__ void __launch_bounds__(kThreads)
    head_linear_kernel(const __grid_constant__ HeadLinearArgs args) {
  constexpr int kTokens = kTiles * 8, kRowsOfBlock = kWarps * kRowTiles * 16;
  extern __shared__ __align__(16) char shared[];
  const int head = blockIdx.y;
  const int64_t first_token = int64_t{blockIdx.z} * kTokens;
  const int row_bytes = args.in_features * 2;
  const char* weight =
      static_cast<const char*>(args.weights[head]) + int64_t{blockIdx.x} * kRowsOfBlock * row_bytes;
  for (int i = threadIdx.x * 128; i < kRowsOfBlock * row_bytes; i += kThreads * 128) {
    device::prefetch_to_l2(weight + i);
  }
  device::wait_for_previous_grid();
  device::allow_next_grid();
  load_tokens<kTokens, kSwap>(args, head, first_token, attention_device::shared_address(shared));

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const char* rows = weight + (warp * kRowTiles * 16 + g) * row_bytes + c * 16;
  float sums[kRowTiles][kTiles][4] = {};
  attention_device::wait_for_copies<0>();
  __syncthreads();
  // Several steps' rows are on their way together.
  constexpr int kSteps = kTiles == 1 ? 4 : 2;
  const int steps = row_bytes / 64;
  for (int first = 0; first < steps; first += kSteps) {
    uint4 w[kSteps][kRowTiles][2];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = min(first + s, steps - 1);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          w[s][m][j] = __ldg(
              reinterpret_cast<const uint4*>(rows + (m * 16 + j * 8) * row_bytes + step * 64));
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s >= steps) break;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 x = *reinterpret_cast<const uint4*>(
            shared + token_offset<kSwap>(n * 8 + g, c + (first + s) * 4, row_bytes));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          const uint4 &low = w[s][m][0], &high = w[s][m][1];
          const uint32_t even[4] = {low.x, high.x, low.y, high.y};
          attention_device::multiply_add<T>(sums[m][n], even, x.x, x.y);
          const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
          attention_device::multiply_add<T>(sums[m][n], odd, x.z, x.w);
        }
      }
    }
  }
  store_sums<T>(args,
                sums,
                first_token,
                static_cast<T*>(args.y) + head * args.y_pitch + blockIdx.x * kRowsOfBlock);
}

template <typename T, int kTiles, int kRowTiles>
void launch_kernel(const HeadLinearArgs& args, gpuStream_t stream) {
  const auto kernel = head_linear_kernel<T, kTiles, kRowTiles>;
  const dim3 grid(args.out_features / (kWarps * kRowTiles * 16),
                  args.num_heads,
                  static_cast<unsigned>((args.num_tokens + kTiles * 8 - 1) / (kTiles * 8)));
  // What is refused here the last error says.
  (void)cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTiles * 8 * kMaxIn * 2);
  (void)device::launch(
      kernel, grid, dim3(kThreads), kTiles * 8 * args.in_features * 2, stream, true, args);
}

template <typename T>
void launch_for(const HeadLinearArgs& args, gpuStream_t stream) {
  if (args.num_tokens <= 8) {
    launch_kernel<T, 1, 1>(args, stream);
  } else if (args.num_tokens <= 32) {
    launch_kernel<T, 4, 1>(args, stream);
  } else if (args.num_tokens <= 64 || args.out_features % 128 != 0) {
    launch_kernel<T, 8, 1>(args, stream);
  } else {
    launch_kernel<T, 8, 2>(args, stream);
  }
}

// 0 without a device.
int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

bool is_aligned(const void* data, int64_t stride, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0 && pitch % 8 == 0;
}

}  // namespace

bool supports_head_linear_memory(const HeadLinearArgs& args) {
  for (int head = 0; head < args.num_heads; ++head) {
    if (reinterpret_cast<uintptr_t>(args.weights[head]) % 16 != 0) return false;
  }
  return args.in_features % 64 == 0 && args.in_features <= kMaxIn && args.out_features % 64 == 0 &&
         is_aligned(args.x, args.x_stride, args.x_pitch) &&
         is_aligned(args.y, args.y_stride, args.y_pitch) &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

bool supports_head_linear_sm90(const HeadLinearArgs& args) {
  return args.element != Element::kFloat32 && !args.is_float8 && supports_head_linear_memory(args);
}

void head_linear_sm90(const HeadLinearArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.element == Element::kBFloat16) {
    launch_for<gpu_bfloat16>(args, stream);
  } else {
    launch_for<__half>(args, stream);
  }
  check_gpu_launch("head_linear");
}

}  // namespace atom::ops
