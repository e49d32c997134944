// As head_linear_sm90.cu, of weights in FP8 with scales of blocks: a thread's 16 bytes of a row are
// 16 columns, which four products take. Sums of 128 columns are multiplied by their scale.
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_stream_format.cuh"
#include "ops/head_linear/head_linear_sm90.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace head_linear_device;

constexpr int kSwap = 1;                                                 // of chunks
constexpr int kGroup = 128, kStep = 64, kStepsOfGroup = kGroup / kStep;  // columns
constexpr int kRowsOfBlock = kWarps * 16;

// Sixteen columns of a row, two in a word.
struct ExpandedRow {
  uint32_t pairs[2][4];

  __device__ explicit ExpandedRow(const uint4& codes) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      device::RowFormat<device::Float8>::expand(codes, v, 0, pairs[v]);
    }
  }
};

// Adds a step's products to a tile's sums.
template <int kTiles>
__device__ inline void add_step(const uint4 (&codes)[2],
                                const char* tokens,
                                int step,
                                int row_bytes,
                                float (&sums)[kTiles][4]) {
  const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const ExpandedRow low(codes[0]), high(codes[1]);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const uint4 x = *reinterpret_cast<const uint4*>(
          tokens + token_offset<kSwap>(n * 8 + g, step * (kStep / 8) + c * 2 + v, row_bytes));
      const auto &first = low.pairs[v], &second = high.pairs[v];
      const uint32_t even[4] = {first[0], second[0], first[1], second[1]};
      attention_device::multiply_add<gpu_bfloat16>(sums[n], even, x.x, x.y);
      const uint32_t odd[4] = {first[2], second[2], first[3], second[3]};
      attention_device::multiply_add<gpu_bfloat16>(sums[n], odd, x.z, x.w);
    }
  }
}

// A lane's first 16 bytes of the first of its two rows, and the scales of its block of rows.
struct Rows {
  const char* data;
  const float* scales;
  int columns;
};

// Groups [first, first + kCount) of columns, as far as there are.
template <int kTiles, int kCount>
__device__ inline void add_groups(const Rows& rows,
                                  int first,
                                  const char* tokens,
                                  float (&sums)[kTiles][4]) {
  const int groups = rows.columns / kGroup;
  uint4 codes[kCount][kStepsOfGroup][2];
  float scale[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int group = min(first + i, groups - 1);
    scale[i] = __ldg(rows.scales + group);
#pragma unroll
    for (int s = 0; s < kStepsOfGroup; ++s) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        codes[i][s][j] = __ldg(reinterpret_cast<const uint4*>(rows.data + j * 8 * rows.columns +
                                                              group * kGroup + s * kStep));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i >= groups) break;
    float part[kTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kStepsOfGroup; ++s) {
      const int step = (first + i) * kStepsOfGroup + s;
      add_step<kTiles>(codes[i][s], tokens, step, rows.columns * 2, part);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[n][k] = fmaf(scale[i], part[n][k], sums[n][k]);
    }
  }
}

// kTiles: of 8 tokens. grid: slices of the weight's rows, heads, tiles of tokens.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, 4)
    head_linear_float8_kernel(const __grid_constant__ HeadLinearArgs args) {
  extern __shared__ __align__(16) char shared[];
  constexpr int kGroupsAtOnce = kTiles == 1 ? 2 : 1;  // on their way together
  const int head = blockIdx.y, columns = args.in_features, groups = columns / kGroup;
  const int64_t first_token = int64_t{blockIdx.z} * kTiles * 8;
  const char* weight =
      static_cast<const char*>(args.weights[head]) + int64_t{blockIdx.x} * kRowsOfBlock * columns;
  for (int i = threadIdx.x * 128; i < kRowsOfBlock * columns; i += kThreads * 128) {
    device::prefetch_to_l2(weight + i);
  }
  device::wait_for_previous_grid();
  device::allow_next_grid();
  load_tokens<kTiles * 8, kSwap>(args, head, first_token, attention_device::shared_address(shared));

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  const int row_block = (static_cast<int>(blockIdx.x) * kRowsOfBlock + warp * 16) / args.scale_rows;
  float sums[1][kTiles][4] = {};
  attention_device::wait_for_copies<0>();
  __syncthreads();
  const Rows weight_rows = {weight + (warp * 16 + g) * columns + c * 16,
                            args.scales + head * args.scale_stride + row_block * groups,
                            columns};
  for (int first = 0; first < groups; first += kGroupsAtOnce) {
    add_groups<kTiles, kGroupsAtOnce>(weight_rows, first, shared, sums[0]);
  }
  store_sums<gpu_bfloat16>(
      args,
      sums,
      first_token,
      static_cast<gpu_bfloat16*>(args.y) + head * args.y_pitch + blockIdx.x * kRowsOfBlock);
}

template <int kTiles>
void launch_kernel(const HeadLinearArgs& args, gpuStream_t stream) {
  const auto kernel = head_linear_float8_kernel<kTiles>;
  const dim3 grid(args.out_features / kRowsOfBlock,
                  args.num_heads,
                  static_cast<unsigned>((args.num_tokens + kTiles * 8 - 1) / (kTiles * 8)));
  // What is refused here the last error says.
  (void)cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTiles * 8 * kMaxIn * 2);
  (void)device::launch(
      kernel, grid, dim3(kThreads), kTiles * 8 * args.in_features * 2, stream, true, args);
}

}  // namespace

bool supports_head_linear_float8_sm90(const HeadLinearArgs& args) {
  return args.element == Element::kBFloat16 && args.is_float8 && args.scale_rows % 16 == 0 &&
         args.in_features % kGroup == 0 && supports_head_linear_memory(args);
}

void head_linear_float8_sm90(const HeadLinearArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.num_tokens <= 8) {
    launch_kernel<1>(args, stream);
  } else if (args.num_tokens <= 32) {
    launch_kernel<4>(args, stream);
  } else {
    launch_kernel<8>(args, stream);
  }
  check_gpu_launch("head_linear");
}

}  // namespace atom::ops
