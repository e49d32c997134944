// The host side of the linear in FP8 with scales of groups on Hopper (blocks/blocks_sm90.cuh).
#include <algorithm>
#include <iterator>

#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/blocks/launch.h"
#include "ops/linear/linear_host_sm90.h"

namespace atom::ops {
namespace {

constexpr int kWeightUnit = 64;  // weight rows that have one scale
constexpr int kBoxRows = 16;     // of y
// Rows of x whose columns are gone through together: they stay in the second-level cache.
constexpr int kGroupRows = 2048;

// From which copying ahead gains: an H200 takes 4 % longer for 65 rows, 6 % less for 128.
constexpr int kFewestRowsAhead = 128;

using Launch = gpuError_t(const device::BlocksArgs&, gpuStream_t);

struct Kernel {
  LinearBlocksTuning tuning;
  Launch* launch;
};
constexpr Kernel kKernels[] = {
    {{256, 128, 2, 1, 1}, device::launch_blocks_256x128_2x1},
    {{256, 128, 2, 1, 1, false}, device::launch_blocks_256x128_2x1_free},
    {{128, 192, 2, 1, 1}, device::launch_blocks_128x192_2x1},
    {{128, 192, 1, 2, 1}, device::launch_blocks_128x192_1x2},
    {{128, 128, 2, 1, 1}, device::launch_blocks_128x128_2x1},
    {{128, 128, 1, 1, 1}, device::launch_blocks_128x128_1x1},
    {{128, 128, 2, 1, 1, false}, device::launch_blocks_128x128_2x1_free},
    {{128, 128, 1, 1, 1, false}, device::launch_blocks_128x128_1x1_free},
    {{128, 128, 1, 1, 2, false}, device::launch_blocks_128x128_1x1x2_free},
    {{128, 96, 2, 1, 1, false}, device::launch_blocks_128x96_2x1_free},
    {{128, 64, 1, 1, 1}, device::launch_blocks_128x64_1x1},
    {{128, 64, 1, 1, 1, false}, device::launch_blocks_128x64_1x1_free},
    {{128, 64, 1, 1, 2, false}, device::launch_blocks_128x64_1x1x2_free},
};

bool is_gated(const LinearGpuCall& p) {
  return p.epilogue == LinearEpilogue::kSiluAndMul;
}

int width_of(const LinearGpuCall& p) {
  return is_gated(p) ? p.out_features / 2 : p.out_features;
}

// A matrix [num_rows, size] in boxes; strides and sizes in elements.
TensorMapShape<2> map_shape(Element element,
                            int64_t num_rows,
                            int64_t size,
                            int64_t stride,
                            int box_rows,
                            int box_columns) {
  return {{static_cast<cuuint64_t>(size), static_cast<cuuint64_t>(num_rows)},
          {static_cast<cuuint64_t>(stride * bytes_of(element))},
          {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)}};
}

bool encode_y_map(CUtensorMap* map, const LinearGpuCall& p, int tile_columns) {
  constexpr int kWide = 64, kNarrow = 32;
  const bool wide = tile_columns % kWide == 0;
  return encode_tensor_map(
      map,
      p.y_element == Element::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      p.y,
      map_shape(p.y_element, p.num_rows, width_of(p), p.y_stride, kBoxRows, wide ? kWide : kNarrow),
      wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

bool encode_maps(device::BlocksArgs* args, const LinearGpuCall& p, const LinearBlocksTuning& used) {
  const int x_rows = args->tile_rows / used.cluster_columns, weight_rows = used.tile_columns / 2;
  return encode_linear_map(
             &args->x,
             p.x_element,
             p.x,
             map_shape(p.x_element, p.num_rows, p.in_features, p.x_stride, x_rows, kPanelSize)) &&
         encode_linear_map(&args->weight,
                           p.weight_element,
                           p.weight,
                           map_shape(p.weight_element,
                                     p.out_features,
                                     p.in_features,
                                     p.in_features,
                                     weight_rows,
                                     kPanelSize)) &&
         encode_y_map(&args->y, p, used.tile_columns);
}

bool is_row(int64_t num_bytes) {
  return num_bytes % kCopyAlignment == 0;
}

}  // namespace

LinearBlocksShape linear_blocks_shape(const LinearGpuCall& p) {
  return {p.num_rows, width_of(p), p.num_groups(), is_gated(p)};
}

bool supports_linear_blocks(const LinearGpuCall& p) {
  const bool has_elements = p.weight_element == Element::kFloat8E4M3 &&
                            p.x_element == Element::kFloat8E4M3 &&
                            (p.y_element == Element::kBFloat16 || p.y_element == Element::kFloat16);
  const bool has_groups = p.group_size == kLinearGroupSize && p.scale_rows % kWeightUnit == 0 &&
                          p.scale_rows > 0 && p.x_scale != nullptr && p.weight_scale != nullptr;
  const bool is_stored =
      p.epilogue == LinearEpilogue::kStore || (is_gated(p) && width_of(p) % kWeightUnit == 0);
  return has_elements && has_groups && is_stored && p.num_rows >= 1 && p.out_features >= 1 &&
         p.in_features >= 1 && int64_t{p.num_rows} * p.num_groups() <= INT32_MAX &&
         is_row(p.in_features) && is_row(p.x_stride) && is_row(p.y_stride * 2) &&
         is_multiple(p.x, kCopyAlignment) && is_multiple(p.weight, kCopyAlignment) &&
         is_multiple(p.y, kCopyAlignment);
}

gpuError_t launch_linear_blocks(const LinearGpuCall& p,
                                const LinearBlocksTuning* tuning,
                                gpuStream_t stream) {
  if (!supports_linear_blocks(p)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  const LinearBlocksShape shape = linear_blocks_shape(p);
  const LinearBlocksTuning used =
      tuning != nullptr ? *tuning : linear_blocks_tuning(shape, num_multiprocessors);
  const Kernel* const kernel = std::find_if(
      std::begin(kKernels), std::end(kKernels), [&](const Kernel& k) { return k.tuning == used; });
  if (kernel == std::end(kKernels) || !takes_linear_blocks(shape, used)) {
    return cudaErrorInvalidValue;
  }
  const LinearBlocksSteps steps = linear_blocks_steps(shape, used, num_multiprocessors);
  device::BlocksArgs args{};
  args.params = p;
  args.params.overlaps_previous = p.overlaps_previous && p.num_rows < device::kManyRows;
  args.tile_rows = linear_blocks_tile_rows(shape, used);
  args.weight_stride = is_gated(p) ? width_of(p) : used.tile_columns / 2;
  args.num_row_steps = steps.rows;
  args.num_column_steps = steps.columns;
  args.group_rows = std::max(1, kGroupRows / (used.tile_rows * used.cluster_rows));
  // A block with a part of k has one tile.
  args.num_clusters = used.parts > 1 ? steps.count() : steps.at_a_time;
  args.num_groups = p.num_groups();
  args.is_ahead = args.params.overlaps_previous && steps.rounds() == 1 &&
                  p.num_rows >= kFewestRowsAhead && p.num_rows <= kMaxFewLinearBlocksRows;
  if (!encode_maps(&args, p, used)) return cudaErrorNotSupported;
  return kernel->launch(args, stream);
}

}  // namespace atom::ops
