// The host side of the linear with k divided on Hopper (split_k/split_k_sm90.cuh).
#include <algorithm>
#include <iterator>

#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/split_k/launch.h"

namespace atom::ops {
namespace {

constexpr int kMatrixRows = 64, kWarpRows = 16;  // of x
constexpr int kUnit = 16;                        // weight rows that share a scale
constexpr int kBlock = 8;                        // columns that are finished together
constexpr int kScaleUnit = 4;  // of groups, at whose multiples copies of scales begin

int x_rows_of(const LinearGpuCall& p) {
  constexpr int kUnitRows = 8;
  return divide_up(p.num_rows, kUnitRows) * kUnitRows;
}

struct Kernel {
  LinearSplitKTuning tuning;
  device::SplitKLaunch* launch;
};
constexpr Kernel kKernels[] = {
    {{64, 1}, device::launch_split_k_64x1},
    {{64, 2}, device::launch_split_k_64x2},
    {{64, 4}, device::launch_split_k_64x4},
    {{80, 1}, device::launch_split_k_80x1},
    {{80, 2}, device::launch_split_k_80x2},
    {{80, 4}, device::launch_split_k_80x4},
    {{96, 1}, device::launch_split_k_96x1},
    {{96, 2}, device::launch_split_k_96x2},
    {{96, 4}, device::launch_split_k_96x4},
};

const Kernel* find_kernel(const LinearSplitKTuning& tuning) {
  const Kernel* const kernel = std::find_if(std::begin(kKernels),
                                            std::end(kKernels),
                                            [&](const Kernel& k) { return k.tuning == tuning; });
  return kernel == std::end(kKernels) ? nullptr : kernel;
}

// Clusters that run at a time. Those of four leave multiprocessors without a block: of the 132 of
// an H200 they use 108.
int max_clusters(int parts, int num_multiprocessors) {
  constexpr int kAll = 132, kUsed = 108;
  const int num_used = parts == 4 ? num_multiprocessors * kUsed / kAll : num_multiprocessors;
  return num_used / parts;
}

device::SplitKLayout layout_of(const LinearGpuCall& p, const LinearSplitKTuning& tuning) {
  // What a block takes; the rest is for the short kernels between two linears.
  constexpr int kSharedSize = 208 << 10;
  constexpr int kXUnderWay = 64 << 10;  // bytes, that hide the latency of their copies
  constexpr int kBarrierSize = 8, kFloatSize = sizeof(float), kCopyUnit = 128;
  const int num_groups = divide_up(p.num_groups(), tuning.parts);
  const int num_blocks = tuning.tile_columns / kBlock, x_rows = x_rows_of(p);
  const int num_items = divide_up(p.num_rows, kWarpRows) * num_blocks;
  const bool joins = tuning.parts > 1;
  const int sums_size =
      joins ? divide_up(num_items, tuning.parts) * tuning.parts * kWarpRows * kBlock * kFloatSize
            : 0;
  const bool begins_in_unit = p.num_groups() % (tuning.parts * kScaleUnit) == 0;
  const int x_scale_stride =
      divide_up(num_groups + (begins_in_unit ? 0 : kScaleUnit - 1), kScaleUnit) * kScaleUnit;
  const int x_scales_size =
      divide_up(kMatrixRows * x_scale_stride * kFloatSize, kCopyUnit) * kCopyUnit;
  const int weight_scales_size = num_groups * num_blocks * kFloatSize;
  const int biases_size = tuning.tile_columns * kFloatSize;
  const int barriers_size = (2 + 3 * num_groups) * kBarrierSize;
  const int x_size = x_rows * kPanelSize, weight_size = tuning.tile_columns * kPanelSize;
  const int free =
      kSharedSize - sums_size - x_scales_size - weight_scales_size - biases_size - barriers_size;
  device::SplitKLayout layout{};
  layout.num_x_stages = num_groups;
  layout.num_weight_stages = num_groups;
  if (num_groups * (x_size + weight_size) > free) {
    layout.num_x_stages = std::min(num_groups, kXUnderWay / x_size);
    layout.num_weight_stages =
        std::min(num_groups, (free - layout.num_x_stages * x_size) / weight_size);
  }
  layout.weight = layout.num_x_stages * x_size;
  const int end_of_stages = layout.weight + layout.num_weight_stages * weight_size;
  layout.x_scale_stride = x_scale_stride;
  layout.sums = end_of_stages;
  layout.x_scales = layout.sums + sums_size;
  layout.biases = layout.x_scales + x_scales_size;
  layout.barriers = layout.biases + biases_size;
  layout.weight_scales = layout.barriers + barriers_size;
  layout.size = layout.weight_scales + weight_scales_size;
  return layout;
}

bool encode_scales_map(CUtensorMap* map, const LinearGpuCall& p, const device::SplitKArgs& args) {
  const auto num_groups = static_cast<cuuint64_t>(args.num_groups);
  const TensorMapShape<2> shape = {
      {num_groups, static_cast<cuuint64_t>(p.num_rows)},
      {num_groups * sizeof(float)},
      {static_cast<cuuint32_t>(args.layout.x_scale_stride), static_cast<cuuint32_t>(args.x_rows)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                           p.x_scale,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_NONE,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

}  // namespace

std::vector<LinearSplitKTuning> linear_split_k_tunings() {
  std::vector<LinearSplitKTuning> tunings;
  for (const Kernel& kernel : kKernels) tunings.push_back(kernel.tuning);
  return tunings;
}

bool takes_linear_split_k(const LinearGpuCall& p,
                          const LinearSplitKTuning& tuning,
                          int num_multiprocessors) {
  // Longer linears are not a chain of latencies, and were not measured.
  constexpr int kMostGroups = 64;  // of a part
  if (p.num_groups() < tuning.parts || p.num_groups() > kMostGroups * tuning.parts) return false;
  const int num_tiles = divide_up(p.out_features, tuning.tile_columns);
  const device::SplitKLayout layout = layout_of(p, tuning);
  return num_tiles <= max_clusters(tuning.parts, num_multiprocessors) &&
         layout.num_weight_stages >= 1;
}

LinearSplitKTuning linear_split_k_tuning(const LinearGpuCall& p, int num_multiprocessors) {
  LinearSplitKTuning best{.tile_columns = 0, .parts = 0};
  int least = 0;
  for (const auto& [tuning, launch] : kKernels) {
    if (!takes_linear_split_k(p, tuning, num_multiprocessors)) continue;
    const int cost = divide_up(p.num_groups(), tuning.parts) * (x_rows_of(p) + tuning.tile_columns);
    if (best.parts > 0 && cost >= least) continue;
    least = cost;
    best = tuning;
  }
  return best;
}

bool supports_linear_split_k(const LinearGpuCall& p) {
  return p.x_element == Element::kFloat8E4M3 && p.weight_element == Element::kFloat8E4M3 &&
         p.y_element != Element::kFloat32 && p.epilogue == LinearEpilogue::kStore &&
         p.group_size == kLinearGroupSize && p.scale_rows > 0 && p.scale_rows % kUnit == 0 &&
         p.num_groups() % kScaleUnit == 0 && is_multiple(p.x_scale, kCopyAlignment) &&
         p.x_scale != nullptr && p.weight_scale != nullptr && p.num_rows >= 1 &&
         p.num_rows <= kMaxSplitKRows && p.out_features % 2 == 0 && p.in_features >= 1 &&
         p.in_features % kCopyAlignment == 0 && p.x_stride % kCopyAlignment == 0 &&
         is_multiple(p.x, kCopyAlignment) && is_multiple(p.weight, kCopyAlignment) &&
         p.y_stride % 2 == 0 && is_multiple(p.y, 4);
}

gpuError_t launch_linear_split_k(const LinearGpuCall& p,
                                 const LinearSplitKTuning& tuning,
                                 gpuStream_t stream) {
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  const Kernel* const kernel = find_kernel(tuning);
  if (!supports_linear_split_k(p) || kernel == nullptr ||
      !takes_linear_split_k(p, tuning, num_multiprocessors)) {
    return cudaErrorInvalidValue;
  }
  device::SplitKArgs args{};
  args.params = p;
  args.x_rows = x_rows_of(p);
  args.num_groups = p.num_groups();
  args.num_tiles = divide_up(p.out_features, tuning.tile_columns);
  args.layout = layout_of(p, tuning);
  if (!encode_linear_rows(
          &args.weight, p, p.weight, p.out_features, p.in_features, tuning.tile_columns) ||
      !encode_linear_rows(&args.x, p, p.x, p.num_rows, p.x_stride, args.x_rows) ||
      !encode_scales_map(&args.x_scales, p, args)) {
    return cudaErrorNotSupported;
  }
  return kernel->launch(args, stream);
}

}  // namespace atom::ops
