// A warp has rows of a head's weight as left operands, straight from memory, and multiplies them by
// the tokens of a tile, which its block shares. The order of the inner dimension is free, so that a
// thread's 16 bytes of a row, of a token as of the weight, serve two steps of it. Sums ascend in k,
// whatever the tile.
#include "ops/head_linear/head_linear_sm90.h"

#include "ops/attention/device/mma.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using attention_device::pack;
using attention_device::transpose_matrix;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kMaxIn = 768;

// Rows of odd tokens have the halves of each 128 bytes exchanged, so that eight lanes meet all
// banks.
__device__ inline uint32_t token_offset(int token, int chunk, int row_bytes) {
  return token * row_bytes + ((chunk ^ ((token & 1) << 2)) << 4);
}

template <int kTokens>
__device__ inline void load_tokens(const HeadLinearArgs& args,
                                   int head,
                                   int64_t first_token,
                                   uint32_t target) {
  const int row_bytes = args.in_features * 2, chunks = row_bytes / 16;
  const char* x =
      static_cast<const char*>(args.x) + (first_token * args.x_stride + head * args.x_pitch) * 2;
  for (int i = threadIdx.x; i < kTokens * chunks; i += kThreads) {
    const int token = i / chunks, chunk = i % chunks;
    const bool exists = first_token + token < args.num_tokens;
    attention_device::copy_async(target + token_offset(token, chunk, row_bytes),
                                 x + (exists ? token * args.x_stride * 2 + chunk * 16 : 0),
                                 exists);
  }
  attention_device::commit_copies();
}

// Steps of 32 elements of a warp's rows, 16 bytes of 64 in each thread.
template <int kSteps, int kRowTiles>
struct WeightPart {
  uint4 rows[kSteps][kRowTiles][2];

  __device__ void load(const char* source, int row_bytes, int first, int num_steps) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int step = min(first + s, num_steps - 1);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          rows[s][m][j] = __ldg(
              reinterpret_cast<const uint4*>(source + (m * 16 + j * 8) * row_bytes + step * 64));
        }
      }
    }
  }
};

// kTiles: of 8 tokens. kRowTiles: of 16 rows that a warp has. kSteps: whose rows are on their way
// together, the first of them before the kernel before has ended. grid: slices of the weight's
// rows, heads, tiles of tokens.
template <typename T, int kTiles, int kRowTiles, int kSteps>
__global__ void __launch_bounds__(kThreads)
    head_linear_kernel(const __grid_constant__ HeadLinearArgs args) {
  constexpr int kTokens = kTiles * 8, kRowsOfBlock = kWarps * kRowTiles * 16;
  extern __shared__ __align__(16) char shared[];
  const int head = blockIdx.y;
  const int64_t first_token = int64_t{blockIdx.z} * kTokens;
  const int row_bytes = args.in_features * 2, num_steps = row_bytes / 64;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const char* rows = static_cast<const char*>(args.weights[head]) +
                     (int64_t{blockIdx.x} * kRowsOfBlock + warp * kRowTiles * 16 + g) * row_bytes +
                     c * 16;
  WeightPart<kSteps, kRowTiles> w;
  w.load(rows, row_bytes, 0, num_steps);
  device::wait_for_previous_grid();
  device::allow_next_grid();
  load_tokens<kTokens>(args, head, first_token, attention_device::shared_address(shared));
  float sums[kRowTiles][kTiles][4] = {};
  attention_device::wait_for_copies<0>();
  __syncthreads();
  for (int first = 0; first < num_steps; first += kSteps) {
    if (first > 0) w.load(rows, row_bytes, first, num_steps);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s >= num_steps) break;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 x = *reinterpret_cast<const uint4*>(
            shared + token_offset(n * 8 + g, c + (first + s) * 4, row_bytes));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          const uint4 &low = w.rows[s][m][0], &high = w.rows[s][m][1];
          const uint32_t even[4] = {low.x, high.x, low.y, high.y};
          attention_device::multiply_add<T>(sums[m][n], even, x.x, x.y);
          const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
          attention_device::multiply_add<T>(sums[m][n], odd, x.z, x.w);
        }
      }
    }
  }
  // Transposed a thread has, of token g of each eight, rows 2c and 2c + 1 of each eight.
  T* y = static_cast<T*>(args.y) + head * args.y_pitch + blockIdx.x * kRowsOfBlock +
         warp * kRowTiles * 16 + c * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int64_t token = first_token + n * 8 + g;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t bits = transpose_matrix(pack<T>(sums[m][n][j * 2], sums[m][n][j * 2 + 1]));
        if (token < args.num_tokens) {
          *reinterpret_cast<uint32_t*>(y + token * args.y_stride + m * 16 + j * 8) = bits;
        }
      }
    }
  }
}

template <typename T, int kTiles, int kRowTiles, int kSteps>
void launch_kernel(const HeadLinearArgs& args, gpuStream_t stream) {
  const auto kernel = head_linear_kernel<T, kTiles, kRowTiles, kSteps>;
  const dim3 grid(args.out_features / (kWarps * kRowTiles * 16),
                  args.num_heads,
                  static_cast<unsigned>((args.num_tokens + kTiles * 8 - 1) / (kTiles * 8)));
  // What is refused here the last error says.
  (void)cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTiles * 8 * kMaxIn * 2);
  (void)device::launch(
      kernel, grid, dim3(kThreads), kTiles * 8 * args.in_features * 2, stream, true, args);
}

template <typename T, int kSteps>
void launch_few(const HeadLinearArgs& args, gpuStream_t stream) {
  if (args.num_tokens <= 8) {
    launch_kernel<T, 1, 1, kSteps>(args, stream);
  } else if (args.num_tokens <= 32) {
    launch_kernel<T, 4, 1, kSteps>(args, stream);
  } else {
    launch_kernel<T, 8, 1, kSteps>(args, stream);
  }
}

template <typename T>
void launch_for(const HeadLinearArgs& args, gpuStream_t stream) {
  if (args.num_tokens > 64 && args.out_features % 128 == 0) {
    launch_kernel<T, 8, 2, 2>(args, stream);
  } else if (args.in_features % 512 == 0) {
    launch_few<T, 16>(args, stream);
  } else {
    launch_few<T, 4>(args, stream);
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

bool supports_head_linear_sm90(const HeadLinearArgs& args) {
  for (int head = 0; head < args.num_heads; ++head) {
    if (reinterpret_cast<uintptr_t>(args.weights[head]) % 16 != 0) return false;
  }
  return args.element != Element::kFloat32 && args.in_features % 64 == 0 &&
         args.in_features <= kMaxIn && args.out_features % 64 == 0 &&
         is_aligned(args.x, args.x_stride, args.x_pitch) &&
         is_aligned(args.y, args.y_stride, args.y_pitch) &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
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
