// The host side of the linear for few rows on Hopper (skinny/skinny_sm90.cuh).
#include <algorithm>
#include <bit>
#include <utility>

#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/skinny/launch.h"

namespace atom::ops {
namespace {

constexpr int kMaxStages = 24;
constexpr int kMatrixRows = 64;  // of the weight, that one instruction multiplies
constexpr int kMaxTileRows = 2 * kMatrixRows, kTileUnit = 16;
constexpr int kMinSplitSize = 16 * kPanelSize;  // bytes of a weight row that two blocks share
constexpr int kMaxStageSize = 84 << 10;
// What a block takes; the rest is for the short kernels between two linears.
constexpr int kSharedSize = 208 << 10;

// A matrix [num_rows, size] in boxes of `box_rows` rows.
bool encode_map(CUtensorMap* map,
                const device::SkinnyArgs& args,
                const void* data,
                int64_t num_rows,
                int64_t stride,
                int box_rows) {
  const Element element = args.params.weight_element;
  const auto element_size = static_cast<int>(bytes_of(element));
  const auto size = static_cast<cuuint64_t>(args.params.in_features);
  const cuuint64_t panel = kPanelSize / element_size;
  const TensorMapShape<3> shape = {{args.whole_panels ? panel : size,
                                    static_cast<cuuint64_t>(num_rows),
                                    args.whole_panels ? size / panel : 1},
                                   {static_cast<cuuint64_t>(stride * element_size), kPanelSize},
                                   {static_cast<cuuint32_t>(panel),
                                    static_cast<cuuint32_t>(box_rows),
                                    static_cast<cuuint32_t>(args.box_panels)}};
  return encode_linear_map(map, element, data, shape);
}

int row_size(const LinearGpuCall& p) {
  return static_cast<int>(p.in_features * bytes_of(p.weight_element));
}

// Rows of a panel that the matrix units read past the last stage: they read 64 weight rows and a
// power of two of rows of x.
int overread(const device::SkinnyArgs& args) {
  const int rows = args.takes_turns ? 2 * args.half_rows : args.half_rows;  // a warpgroup's
  const int of_weight =
      divide_up(rows, kMatrixRows) * kMatrixRows - rows - args.num_panels * args.x_rows;
  const int of_x =
      static_cast<int>(std::bit_ceil(static_cast<unsigned>(args.x_rows))) - args.x_rows;
  return std::max(of_weight, of_x);
}

device::SkinnyLayout layout_of(const device::SkinnyArgs& args) {
  constexpr int kBarrierSize = 8, kBankRows = 16;
  const int tile_rows = 2 * args.half_rows, float_size = sizeof(float);
  device::SkinnyLayout layout{};
  layout.stage_size = args.num_panels * (tile_rows + args.x_rows) * kPanelSize;
  const int end_of_stages = args.num_stages * layout.stage_size;
  // Such that the pairs that a warp stores at a time lie in different banks.
  layout.sums_stride = divide_up(tile_rows >> args.log_splits, kBankRows) * kBankRows + 4;
  layout.part_size = args.x_rows * layout.sums_stride * float_size;
  layout.sums = args.reuses_stages ? 0 : end_of_stages;
  const int end_of_sums = layout.sums + (args.num_parts << args.log_splits) * layout.part_size;
  layout.rows = std::max(end_of_sums, end_of_stages);
  layout.rows_size = 2 * tile_rows * float_size;
  layout.x_scales = layout.rows + 2 * layout.rows_size;
  layout.groups = layout.x_scales + args.x_rows * float_size;
  if (args.x_group_scales != nullptr) {
    // A row's scales, which threads side by side store, lie in different banks.
    layout.groups_stride = static_cast<int>(std::bit_ceil(static_cast<unsigned>(args.x_rows))) + 2;
  }
  const int num_chunks = divide_up(args.num_chunks, 1 << args.log_splits);
  layout.barriers =
      layout.groups + num_chunks * args.num_panels * layout.groups_stride * float_size;
  layout.size = std::max(layout.barriers + (2 * args.num_stages + 1) * kBarrierSize,
                         end_of_stages + overread(args) * kPanelSize);
  return layout;
}

// With groups the 16 rows of a warp share a scale, and so begin at multiples of 16 in each half of
// a tile that warpgroups, or gate and up, have of their own.
int grouped_tile_unit(const LinearGpuCall& p, int tile_rows) {
  const bool in_halves = p.epilogue == LinearEpilogue::kSiluAndMul || tile_rows > kMatrixRows;
  return in_halves ? 2 * kTileUnit : kTileUnit;
}

bool goes_with_groups(const LinearGpuCall& p, const LinearSkinnyTuning& tuning) {
  return tuning.num_panels == device::skinny_group_panels(p.num_rows) &&
         tuning.tile_rows % grouped_tile_unit(p, tuning.tile_rows) == 0;
}

// False for a tuning that does not go with the shape.
bool plan(const LinearGpuCall& p,
          const LinearSkinnyTuning& tuning,
          int num_multiprocessors,
          device::SkinnyArgs* args) {
  if (tuning.tile_rows % 16 != 0 || tuning.tile_rows < 16 || tuning.tile_rows > kMaxTileRows ||
      tuning.num_splits < 1 || tuning.num_splits > 2 ||
      (tuning.num_panels != 1 && tuning.num_panels != 2 && tuning.num_panels != 4)) {
    return false;
  }
  if (p.has_groups() && !goes_with_groups(p, tuning)) return false;
  const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  args->params = p;
  if (p.has_groups()) {
    args->x_group_scales = std::exchange(args->params.x_scale, nullptr);
    args->weight_group_scales = std::exchange(args->params.weight_scale, nullptr);
    args->num_groups = p.num_groups();
  }
  args->half_rows = tuning.tile_rows / 2;
  args->half_stride = gated ? p.out_features / 2 : args->half_rows;
  args->x_rows = divide_up(p.num_rows, 8) * 8;
  args->takes_turns = tuning.tile_rows <= kMatrixRows;
  args->num_parts = args->takes_turns ? 2 : 1;
  args->num_panels = tuning.num_panels;
  args->whole_panels = row_size(p) % kPanelSize == 0;
  // Who multiplies whole tiles wants the rows of a panel side by side, also those of two boxes.
  const bool by_panel = gated && args->takes_turns;
  args->box_panels = args->whole_panels && !by_panel ? tuning.num_panels : 1;
  const int tile_features = gated ? args->half_rows : tuning.tile_rows;
  args->num_tiles = divide_up(gated ? p.out_features / 2 : p.out_features, tile_features);
  args->num_chunks = divide_up(row_size(p), kPanelSize * tuning.num_panels);
  args->log_splits = tuning.num_splits - 1;
  args->num_clusters = std::min(args->num_tiles, num_multiprocessors / tuning.num_splits);
  const bool one_round = args->num_tiles == args->num_clusters;
  args->reuses_stages = tuning.num_splits == 1 && one_round;
  args->num_stages = kMaxStages;
  while (args->num_stages > 0 && layout_of(*args).size > kSharedSize) --args->num_stages;
  // A warpgroup that takes stages in turn has the same ones in every round of the ring.
  args->num_stages -= args->num_stages % args->num_parts;
  args->layout = layout_of(*args);
  // More gains nothing, nor does it where more rows take longer than what is late of the weight.
  constexpr int kAheadSize = 64 << 10, kMostAheadRows = 16;
  if (p.has_groups() && one_round && p.num_rows <= kMostAheadRows) {
    args->num_ahead = kAheadSize / (tuning.num_panels * tuning.tile_rows * kPanelSize);
  }
  return args->num_stages >= 2 && args->num_chunks >= tuning.num_splits &&
         (tuning.num_splits == 1 || one_round);
}

// How many of `count` rows each of `num_shares` has, in tiles' granularity.
int share_of(int count, int num_shares) {
  return divide_up(divide_up(count, num_shares), kTileUnit) * kTileUnit;
}

}  // namespace

// Measured on an H200 with the linears of an 8B layer and an output projection, at 1 to 64 rows.
LinearSkinnyTuning linear_skinny_tuning(const LinearGpuCall& p, int num_multiprocessors) {
  LinearSkinnyTuning tuning;
  const int num_pairs = num_multiprocessors / 2;
  const bool splits =
      share_of(p.out_features, num_pairs) <= kMaxTileRows && row_size(p) >= kMinSplitSize;
  tuning.num_splits = splits ? 2 : 1;
  const int num_clusters = splits ? num_pairs : num_multiprocessors;
  const int num_rounds = divide_up(p.out_features, num_clusters * kMaxTileRows);
  tuning.tile_rows = share_of(p.out_features, num_clusters * num_rounds);
  const bool few_copies = splits && tuning.tile_rows > kMatrixRows && p.num_rows <= 32;
  tuning.num_panels = p.num_rows <= 16 || few_copies ? 4 : 2;
  const int panel_size = (tuning.tile_rows + divide_up(p.num_rows, 8) * 8) * kPanelSize;
  while (tuning.num_panels * panel_size > kMaxStageSize) tuning.num_panels /= 2;
  if (p.has_groups()) {
    tuning.num_panels = device::skinny_group_panels(p.num_rows);
    const int unit = grouped_tile_unit(p, tuning.tile_rows);
    tuning.tile_rows = divide_up(tuning.tile_rows, unit) * unit;
  }
  return tuning;
}

bool supports_linear_skinny(const LinearGpuCall& p) {
  const bool float8 = p.weight_element == Element::kFloat8E4M3;
  const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  const bool wide_y = p.y_element == Element::kFloat32;
  const int64_t element_size = bytes_of(p.weight_element);
  const bool takes_groups = !p.has_groups() || (float8 && p.group_size == kLinearGroupSize &&
                                                p.scale_rows % kTileUnit == 0 &&
                                                (!gated || p.out_features / 2 % kTileUnit == 0) &&
                                                p.x_scale != nullptr && p.weight_scale != nullptr);
  return p.x_element == p.weight_element && p.weight_element != Element::kFloat32 && takes_groups &&
         !(wide_y && (float8 || p.epilogue != LinearEpilogue::kStore)) && p.num_rows >= 1 &&
         p.num_rows <= kMaxSkinnyRows && p.out_features >= 1 &&
         (!gated || p.out_features % 2 == 0) && p.in_features >= 1 &&
         p.in_features * element_size % kCopyAlignment == 0 &&
         p.x_stride * element_size % kCopyAlignment == 0 && is_multiple(p.x, kCopyAlignment) &&
         is_multiple(p.weight, kCopyAlignment);
}

gpuError_t launch_linear_skinny(const LinearGpuCall& p,
                                const LinearSkinnyTuning* tuning,
                                gpuStream_t stream) {
  if (!supports_linear_skinny(p)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  device::SkinnyArgs args{};
  const LinearSkinnyTuning used =
      tuning != nullptr ? *tuning : linear_skinny_tuning(p, num_multiprocessors);
  if (!plan(p, used, num_multiprocessors, &args)) return cudaErrorInvalidValue;
  const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  const int box_rows = gated ? args.half_rows : 2 * args.half_rows;
  if (!encode_map(&args.weight, args, p.weight, p.out_features, p.in_features, box_rows) ||
      !encode_map(&args.x, args, p.x, p.num_rows, p.x_stride, args.x_rows)) {
    return cudaErrorNotSupported;
  }
  switch (p.weight_element) {
    case Element::kFloat8E4M3:
      return p.has_groups() ? device::launch_skinny_groups(args, stream)
                            : device::launch_skinny_float8(args, stream);
    case Element::kFloat16:
      return device::launch_skinny_float16(args, stream);
    default:
      return device::launch_skinny_bfloat16(args, stream);
  }
}

}  // namespace atom::ops
