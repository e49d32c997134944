// The launches of fused_moe for few tokens: the two matrices, then the sum of each token's results.
#include <algorithm>
#include <optional>

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_stream.h"
#include "ops/fused_moe/moe_stream_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

// Of a block: so much that two share a multiprocessor, and all of it.
constexpr int kHalfSharedSize = 113 << 10;
constexpr int kSharedSize = 227 << 10;
constexpr int kBarriersSize = 256;
// Bytes under way that keep the memory busy, and that suffice where there is no room for more.
constexpr int kGoodRingSize = 60 << 10;
constexpr int kLeastRingSize = 40 << 10;
// Columns of a block of scales; see Consumer::load_scales.
constexpr int kBlockColumns = 128;

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int num_multiprocessors() {
  static const int count = [] {
    int device = 0, value = 0;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device);
    return value;
  }();
  return count;
}

struct Plan {
  MoeStreamArgs args;
  MoeStreamInstance instance;
};

// Steps of a slice that leave the fewest of a row's slices empty.
int steps_for(const ExpertMatrices& matrices, int row_size) {
  if (matrices.scales_across > 1) return 2;
  const auto padded = [row_size](int steps) {
    return round_up(row_size, kConsumerWarps * steps * kStepSize);
  };
  return padded(3) < padded(2) ? 3 : 2;
}

// Bytes past a multiple of 128 from token to token in shared memory, so that the eight lanes of one
// phase of a read meet all banks: lanes read vectors 1, 2 or 4 apart.
int x_skew(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kAsX:
      return 64;
    case ExpertFormat::kInt4:
      return 64;
    case ExpertFormat::kFloat8:
    case ExpertFormat::kInt8:
      return 16;
    default:
      return 32;
  }
}

// Bytes of a row of a matrix.
int row_size_of(ExpertFormat format, int num_columns) {
  switch (format) {
    case ExpertFormat::kAsX:
      return num_columns * 2;
    case ExpertFormat::kFloat8:
    case ExpertFormat::kInt8:
      return num_columns;
    default:
      return num_columns / 2;
  }
}

// Divides shared memory; false when what is left for the ring is less than `least_ring_size`.
bool divide(Plan& plan, int size, int num_x_buffers, int least_ring_size) {
  MoeStreamArgs& args = plan.args;
  const int tokens = plan.instance.num_tokens;
  const int num_choices = args.call.num_tokens * args.call.top_k;
  const int slice_size = kConsumerWarps * plan.instance.num_steps * kStepSize;
  const int skew = args.call.format == ExpertFormat::kInt4 ? kGroupRowSkew : kStageRowSkew;
  args.stage_size =
      round_up(kTileRows * (slice_size + skew + args.row_exponents + args.row_scales), 128);
  constexpr int kPlanSize = 10;  // bytes for each choice: a group and a row
  args.plan = kBarriersSize;
  args.sums = round_up(args.plan + num_choices * kPlanSize, 128);
  args.x_buffers = args.sums + 2 * kConsumerWarps * kTileRows * tokens * int{sizeof(float)};
  args.x_row_stride = round_up(args.x_size, 128) + x_skew(args.call.format);
  args.num_x_buffers = num_x_buffers;
  args.ring = round_up(args.x_buffers + num_x_buffers * args.num_x_rows * args.x_row_stride, 128);
  args.num_stages = std::min(kMaxStages, (size - args.ring) / args.stage_size);
  args.shared_size = args.ring + args.num_stages * args.stage_size;
  return args.num_stages * args.stage_size >= least_ring_size;
}

// Of kInt4, by the scales of a row.
bool copies_scales_by_row(const ExpertMatrices& matrices) {
  return matrices.scales_across % (kVectorSize / int{sizeof(float)}) == 0;
}

// Scales of rows that are not whole vectors are copied of eight rows at once, and whole.
void plan_scales(Plan& plan) {
  MoeStreamArgs& args = plan.args;
  if (args.call.format != ExpertFormat::kInt4) return;
  const ExpertMatrices& matrices = args.matrices;
  const int slice_size = kConsumerWarps * plan.instance.num_steps * kStepSize;
  args.copies_scales_by_row = copies_scales_by_row(matrices);
  const int of_slice = slice_size * 2 / matrices.scale_columns;
  args.row_scales = args.copies_scales_by_row ? of_slice * int{sizeof(float)} + kGroupRowSkew
                                              : matrices.scales_across * int{sizeof(float)};
}

// Groups of so many tokens. Nothing when the rows of x do not fit shared memory.
std::optional<Plan> plan_groups(const FusedMoeGpuCall& call,
                                const FusedMoeGpuScratch& scratch,
                                bool is_gated,
                                int num_tokens) {
  Plan plan{};
  MoeStreamArgs& args = plan.args;
  const int num_columns = is_gated ? call.hidden_size : call.intermediate_size;
  args.call = call;
  args.scratch = scratch;
  args.matrices = is_gated ? call.gate_up : call.down;
  args.x = is_gated ? call.x : scratch.activated;
  args.x_size = num_columns * 2;
  args.x_stride = is_gated ? call.x_stride * 2 : args.x_size;
  args.num_rows = is_gated ? 2 * call.intermediate_size : call.hidden_size;
  args.row_size = row_size_of(call.format, num_columns);
  args.row_exponents = call.format == ExpertFormat::kFloat4 ? num_columns / kExponentColumns : 0;
  args.tiles_per_expert = (args.num_rows + kTileRows - 1) / kTileRows;
  plan.instance = {.num_tokens = num_tokens,
                   .num_steps = steps_for(args.matrices, args.row_size),
                   .is_gated = is_gated};
  constexpr int kFewTokens = 8;  // whose rows each lane has one of
  args.num_x_rows = num_tokens > kFewTokens ? num_tokens : std::min(num_tokens, call.num_tokens);
  plan_scales(plan);
  if (divide(plan, kHalfSharedSize, 1, kGoodRingSize)) return plan;
  if (divide(plan, kSharedSize, kMaxXBuffers, kGoodRingSize)) return plan;
  if (divide(plan, kSharedSize, 1, kLeastRingSize)) return plan;
  return std::nullopt;
}

bool is_integer(const FusedMoeGpuCall& call) {
  return call.format == ExpertFormat::kInt8 || call.format == ExpertFormat::kInt4;
}

std::optional<Plan> plan_for(const FusedMoeGpuCall& call,
                             const FusedMoeGpuScratch& scratch,
                             bool is_gated) {
  constexpr int kFew = 8, kMost = 16;
  // Of an expert on average: few more than the half of a group.
  const int rows = call.num_tokens * call.top_k / call.num_experts;
  const bool is_few = call.num_tokens <= kFew || (is_integer(call) && rows <= kFew / 2);
  const int wanted = is_few ? kFew : kMost;
  const std::optional<Plan> plan = plan_groups(call, scratch, is_gated, wanted);
  return plan ? plan : plan_groups(call, scratch, is_gated, kFew);
}

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && stride % kVectorSize == 0;
}

// With scales that sums are multiplied by, which a slice has whole.
bool fits_groups(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  const int columns = matrices.scale_columns;
  const int64_t scales_size = matrices.scale_stride * int64_t{sizeof(float)};
  const bool copied_whole = num_columns / 2 <= kConsumerWarps * 2 * kStepSize;
  return matrices.scale_rows == 1 && (columns == 32 || columns == 128) &&
         matrices.scales_across > 1 && num_columns % columns == 0 && num_rows % kTileRows == 0 &&
         (copies_scales_by_row(matrices) || copied_whole) &&
         is_aligned(matrices.scales, scales_size);
}

bool fits_matrices(const ExpertMatrices& matrices,
                   int num_rows,
                   int num_columns,
                   ExpertFormat format) {
  if (format == ExpertFormat::kInt4 && !fits_groups(matrices, num_rows, num_columns)) return false;
  const bool fits_blocks =
      format == ExpertFormat::kInt4 || matrices.scales_across <= 1 ||
      (matrices.scale_columns == kBlockColumns && matrices.scale_rows % kTileRows == 0);
  // Exponents are copied of eight rows at a time, and a half of a tile is there or is not.
  const bool fits_exponents =
      format != ExpertFormat::kFloat4 ||
      (num_columns % (2 * kExponentColumns) == 0 && num_rows % kTileRows == 0 &&
       is_aligned(matrices.exponents, matrices.exponent_stride));
  return fits_blocks && fits_exponents && is_aligned(matrices.data, matrices.expert_stride) &&
         row_size_of(format, num_columns) % kVectorSize == 0;
}

constexpr int kCombineThreads = 128;
constexpr int kCombineColumns = 4;  // of a thread

template <typename Y>
__global__ void __launch_bounds__(kCombineThreads)
    combine_results(const __grid_constant__ FusedMoeGpuCall call, const float* results) {
  const int token = blockIdx.y;
  const int column = (blockIdx.x * kCombineThreads + threadIdx.x) * kCombineColumns;
  allow_next_grid();
  wait_for_previous_grid();
  if (column >= call.hidden_size) return;
  const int first = token * call.top_k;
  float4 total{};
#pragma unroll 8
  for (int j = 0; j < call.top_k; ++j) {
    if (place_of(call, first + j) < 0) continue;
    const auto* source =
        reinterpret_cast<const float4*>(results + int64_t{first + j} * call.hidden_size + column);
    const float4 result = gpu_load_from_l2(source);
    total.x += result.x;
    total.y += result.y;
    total.z += result.z;
    total.w += result.w;
  }
  Y* y = static_cast<Y*>(call.y) + token * call.y_stride + column;
  y[0] = from_float<Y>(total.x);
  y[1] = from_float<Y>(total.y);
  y[2] = from_float<Y>(total.z);
  y[3] = from_float<Y>(total.w);
}

}  // namespace

gpuError_t add_moe_stream_results(const FusedMoeGpuCall& call,
                                  const float* results,
                                  gpuStream_t stream) {
  constexpr int kBlockColumnsOfY = kCombineThreads * kCombineColumns;
  const dim3 grid((call.hidden_size + kBlockColumnsOfY - 1) / kBlockColumnsOfY, call.num_tokens);
  gpuError_t error = cudaSuccess;
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    error = launch(combine_results<Y>, grid, dim3(kCombineThreads), 0, stream, true, call, results);
  });
  return error;
}

bool fits_moe_stream(const FusedMoeGpuCall& call) {
  const int hidden_size = call.hidden_size, size = call.intermediate_size;
  const bool fits_format = call.format == ExpertFormat::kAsX ||
                           call.format == ExpertFormat::kFloat8 ||
                           call.format == ExpertFormat::kFloat4 ||
                           call.format == ExpertFormat::kInt8 || call.format == ExpertFormat::kInt4;
  return fits_format && call.element == Element::kBFloat16 && call.num_tokens <= kMaxStreamTokens &&
         call.num_tokens * call.top_k <= kMaxStreamChoices && call.num_experts <= kMaxGpuExperts &&
         hidden_size % kCombineColumns == 0 && size * 2 % kVectorSize == 0 &&
         is_aligned(call.x, call.x_stride * 2) &&
         fits_matrices(call.gate_up, 2 * size, hidden_size, call.format) &&
         fits_matrices(call.down, hidden_size, size, call.format) && plan_for(call, {}, true) &&
         plan_for(call, {}, false);
}

gpuError_t launch_moe_stream_matrix(const FusedMoeGpuCall& call,
                                    const FusedMoeGpuScratch& scratch,
                                    bool is_gate_up,
                                    bool overlaps_previous,
                                    gpuStream_t stream) {
  const std::optional<Plan> plan = plan_for(call, scratch, is_gate_up);
  if (!plan) return cudaErrorInvalidValue;
  // Where codes are expanded by more instructions, other blocks' copies wait for a tile's end.
  const bool has_two = is_integer(call) && plan->args.shared_size <= kHalfSharedSize;
  const int num_blocks = num_multiprocessors() * (has_two ? 2 : 1);
  switch (call.format) {
    case ExpertFormat::kAsX:
      return launch_moe_stream_bfloat16(
          plan->args, plan->instance, overlaps_previous, num_blocks, stream);
    case ExpertFormat::kFloat8:
      return launch_moe_stream_float8(
          plan->args, plan->instance, overlaps_previous, num_blocks, stream);
    case ExpertFormat::kFloat4:
      return launch_moe_stream_float4(
          plan->args, plan->instance, overlaps_previous, num_blocks, stream);
    case ExpertFormat::kInt8:
      return launch_moe_stream_int8(
          plan->args, plan->instance, overlaps_previous, num_blocks, stream);
    case ExpertFormat::kInt4:
      return launch_moe_stream_int4(
          plan->args, plan->instance, overlaps_previous, num_blocks, stream);
    case ExpertFormat::kFloat4Images:
      break;  // has no plan
  }
  return cudaErrorInvalidValue;
}

gpuError_t launch_moe_stream(const FusedMoeGpuCall& call,
                             const FusedMoeGpuScratch& scratch,
                             bool overlaps_previous,
                             gpuStream_t stream) {
  gpuError_t error = launch_moe_stream_matrix(call, scratch, true, overlaps_previous, stream);
  if (error == cudaSuccess) error = launch_moe_stream_matrix(call, scratch, false, true, stream);
  return error == cudaSuccess ? add_moe_stream_results(call, scratch.results, stream) : error;
}

}  // namespace atom::ops
