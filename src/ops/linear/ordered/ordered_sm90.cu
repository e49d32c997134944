// The host side of the ordered linear for few rows on Hopper (ordered/ordered_sm90.cuh).
#include "ops/linear/ordered/ordered_sm90.h"

#include <algorithm>

#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/ordered/launch_sm90.h"

namespace atom::ops {
namespace {

constexpr int kMaxStages = 24;
constexpr int kMatrixRows = 64;  // of the weight, that one instruction multiplies
constexpr int kMaxTileRows = 2 * kMatrixRows, kTileUnit = 16;
constexpr int kMaxStageSize = 70 << 10;
// What a block takes; the rest is for the short kernels between two linears.
constexpr int kSharedSize = 208 << 10;

// A matrix [num_rows, in_features] in boxes of `box_rows` rows and `box_panels` panels.
bool encode_map(CUtensorMap* map,
                const LinearGpuCall& p,
                const void* data,
                int64_t num_rows,
                int64_t stride,
                int box_rows,
                int box_panels) {
  const int64_t element_size = bytes_of(p.weight_element);
  const cuuint64_t panel = kPanelSize / element_size;
  const TensorMapShape<3> shape = {
      {panel, static_cast<cuuint64_t>(num_rows), static_cast<cuuint64_t>(p.in_features) / panel},
      {static_cast<cuuint64_t>(stride * element_size), kPanelSize},
      {static_cast<cuuint32_t>(panel),
       static_cast<cuuint32_t>(box_rows),
       static_cast<cuuint32_t>(box_panels)}};
  return encode_linear_map(map, p.weight_element, data, shape);
}

int power_of_two_for(int count, int least) {
  int power = least;
  while (power < count) power *= 2;
  return power;
}

// Tiles that spread the weight evenly over the multiprocessors, in as few rounds as can be.
void plan(const LinearGpuCall& p,
          const OrderedTuning& tuning,
          int num_multiprocessors,
          device::OrderedArgs* args) {
  args->params = p;
  args->is_gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  const int rows_of_output = args->is_gated ? 2 : 1;
  const int rounds = divide_up(p.out_features, num_multiprocessors * kMaxTileRows);
  const int share = divide_up(args->num_outputs(), num_multiprocessors * rounds);
  args->tile_rows = divide_up(share * rows_of_output, kTileUnit) * kTileUnit;
  args->whole_tiles = !args->is_gated && args->tile_rows <= kMatrixRows;
  args->splits_x = args->whole_tiles && !args->takes_turns() && p.num_rows > tuning.one_group_rows;
  args->columns = power_of_two_for(args->splits_x ? divide_up(p.num_rows, 2) : p.num_rows, 8);
  args->num_tiles = divide_up(args->num_outputs(), args->box_rows());
  const int num_panels = static_cast<int>(p.in_features * bytes_of(p.weight_element) / kPanelSize);
  const int panel_size = (args->tile_rows + args->x_rows()) * kPanelSize;
  args->num_panels = args->whole_tiles ? 4 : 2;
  while (num_panels % args->num_panels != 0 || args->num_panels * panel_size > kMaxStageSize) {
    args->num_panels /= 2;
  }
  args->num_chunks = num_panels / args->num_panels;
  args->num_stages = kMaxStages;
  while (device::OrderedLayout(*args).size > kSharedSize) --args->num_stages;
}

bool on_hopper() {
  int gpu = 0, major = 0;
  return cudaGetDevice(&gpu) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess &&
         major == 9;
}

}  // namespace

bool supports_linear_ordered_sm90(const LinearGpuCall& p) {
  static const bool hopper = on_hopper();
  const bool float8 = p.weight_element == Element::kFloat8E4M3;
  const bool wide_y = p.y_element == Element::kFloat32;
  const bool is_gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  const int64_t element_size = bytes_of(p.weight_element);
  return hopper && p.x_element == p.weight_element && p.weight_element != Element::kFloat32 &&
         (p.epilogue == LinearEpilogue::kStore ||
          (is_gated && p.out_features % 2 == 0 && !wide_y)) &&
         !(wide_y && float8) && p.num_rows >= 1 && p.num_rows <= kMaxOrderedRows &&
         p.out_features >= 1 && p.in_features >= 1 &&
         p.in_features * element_size % kPanelSize == 0 &&
         p.x_stride * element_size % kCopyAlignment == 0 && is_multiple(p.x, kCopyAlignment) &&
         is_multiple(p.weight, kCopyAlignment);
}

gpuError_t launch_linear_ordered_sm90(const LinearGpuCall& p, gpuStream_t stream) {
  return launch_linear_ordered_sm90(p, {}, stream);
}

gpuError_t launch_linear_ordered_sm90(const LinearGpuCall& p,
                                      const OrderedTuning& tuning,
                                      gpuStream_t stream) {
  if (!supports_linear_ordered_sm90(p)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  device::OrderedArgs args{};
  plan(p, tuning, num_multiprocessors, &args);
  const auto encode = [&](CUtensorMap* map, const void* data, int rows, int64_t stride, int box) {
    return encode_map(map, p, data, rows, stride, box, args.num_panels);
  };
  if (!encode(&args.weight, p.weight, p.out_features, p.in_features, args.box_rows()) ||
      !encode(&args.x, p.x, p.num_rows, p.x_stride, args.x_rows())) {
    return cudaErrorNotSupported;
  }
  const int num_blocks = std::min(args.num_tiles, num_multiprocessors);
  switch (p.weight_element) {
    case Element::kFloat8E4M3:
      return device::launch_ordered_float8(args, num_blocks, stream);
    case Element::kFloat16:
      return device::launch_ordered_float16(args, num_blocks, stream);
    default:
      return device::launch_ordered_bfloat16(args, num_blocks, stream);
  }
}

}  // namespace atom::ops
