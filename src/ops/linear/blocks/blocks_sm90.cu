// The host side of the linear in FP8 with scales of groups on Hopper (blocks/blocks_sm90.cuh).
#include <algorithm>
#include <iterator>

#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/blocks/launch.h"
#include "ops/linear/linear_host_sm90.h"

namespace atom::ops {
namespace {

constexpr int kWeightUnit = 64;                 // weight rows of half a tile, which have one scale
constexpr int kBoxColumns = 64, kBoxRows = 16;  // of y
// Rows of x whose columns are gone through together: they stay in the second-level cache.
constexpr int kGroupRows = 2048;

struct Tile {
  LinearBlocksTuning tuning;
  gpuError_t (*launch)(const device::BlocksArgs&, gpuStream_t);
  double cost;  // of a product, relative
};
constexpr Tile kTiles[] = {
    {{256, 128, 2}, device::launch_blocks_256x128, 1.0},
    {{256, 128, 2, false}, device::launch_blocks_256x128_free, 1.01},
    {{128, 128, 2}, device::launch_blocks_128x128_pair, 1.05},
    {{128, 128, 1}, device::launch_blocks_128x128, 1.1},
    {{128, 64, 1}, device::launch_blocks_128x64, 1.3},
};

bool is_gated(const LinearGpuCall& p) {
  return p.epilogue == LinearEpilogue::kSiluAndMul;
}

int width_of(const LinearGpuCall& p) {
  return is_gated(p) ? p.out_features / 2 : p.out_features;
}

bool takes(const LinearGpuCall& p, const LinearBlocksTuning& tuning) {
  return !is_gated(p) || tuning.tile_columns / 2 >= kBoxColumns;
}

// What the blocks do one after the other.
struct Steps {
  int rows, columns, num_clusters;

  Steps(const LinearGpuCall& p, const LinearBlocksTuning& tuning, int num_multiprocessors)
      : rows(divide_up(p.num_rows, tuning.tile_rows * tuning.cluster_size)),
        columns(divide_up(width_of(p), tuning.tile_columns / (is_gated(p) ? 2 : 1))),
        num_clusters(std::min(rows * columns, num_multiprocessors / tuning.cluster_size)) {}
  int rounds() const { return divide_up(rows * columns, num_clusters); }
};

// A matrix [num_rows, size] in boxes; strides and sizes in elements.
bool encode_map(CUtensorMap* map,
                Element element,
                const void* data,
                int64_t num_rows,
                int64_t size,
                int64_t stride,
                int box_rows) {
  const int64_t element_size = bytes_of(element);
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(size), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(stride * element_size)},
      {static_cast<cuuint32_t>(kPanelSize / element_size), static_cast<cuuint32_t>(box_rows)}};
  return encode_linear_map(map, element, data, shape);
}

bool is_row(int64_t num_bytes) {
  return num_bytes % kCopyAlignment == 0;
}

}  // namespace

LinearBlocksTuning linear_blocks_tuning(const LinearGpuCall& p, int num_multiprocessors) {
  // Groups that take as long as a tile's beginning and end.
  constexpr double kTileGroups = 3;
  const double num_groups = p.num_groups() + kTileGroups;
  double least = 0;
  LinearBlocksTuning best;
  for (const Tile& tile : kTiles) {
    const LinearBlocksTuning& tuning = tile.tuning;
    if (!takes(p, tuning)) continue;
    const double cost = Steps(p, tuning, num_multiprocessors).rounds() * num_groups * tile.cost *
                        tuning.tile_rows * tuning.tile_columns;
    if (least == 0 || cost < least) best = tuning;
    if (least == 0 || cost < least) least = cost;
  }
  return best;
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
  const LinearBlocksTuning used =
      tuning != nullptr ? *tuning : linear_blocks_tuning(p, num_multiprocessors);
  const Tile* const tile = std::find_if(std::begin(kTiles), std::end(kTiles), [&](const Tile& t) {
    return t.tuning.tile_rows == used.tile_rows && t.tuning.tile_columns == used.tile_columns &&
           t.tuning.cluster_size == used.cluster_size && t.tuning.takes_turns == used.takes_turns;
  });
  if (tile == std::end(kTiles) || !takes(p, used)) return cudaErrorInvalidValue;
  const Steps steps(p, used, num_multiprocessors);
  const int half_columns = used.tile_columns / 2;
  device::BlocksArgs args{};
  args.params = p;
  args.params.overlaps_previous = p.overlaps_previous && p.num_rows < device::kManyRows;
  args.weight_stride = is_gated(p) ? width_of(p) : half_columns;
  args.num_row_steps = steps.rows;
  args.num_column_steps = steps.columns;
  args.group_rows = std::max(1, kGroupRows / (used.tile_rows * used.cluster_size));
  args.num_clusters = steps.num_clusters;
  args.num_groups = p.num_groups();
  if (!encode_map(
          &args.x, p.x_element, p.x, p.num_rows, p.in_features, p.x_stride, used.tile_rows) ||
      !encode_map(&args.weight,
                  p.weight_element,
                  p.weight,
                  p.out_features,
                  p.in_features,
                  p.in_features,
                  half_columns) ||
      !encode_map(&args.y, p.y_element, p.y, p.num_rows, width_of(p), p.y_stride, kBoxRows)) {
    return cudaErrorNotSupported;
  }
  return tile->launch(args, stream);
}

}  // namespace atom::ops
