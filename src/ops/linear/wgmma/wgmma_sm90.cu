// The host side of the linear for many rows on Hopper (wgmma/wgmma_sm90.cuh).
#include <algorithm>

#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/wgmma/launch.h"

namespace atom::ops {
namespace {

constexpr int kElementSize = 2;
// Whose columns are gone through together: their x stays in the second-level cache.
constexpr int kGroupRows = 16 / device::kWgmmaClusterSize;

bool is_gated(const LinearGpuCall& p) {
  return p.epilogue == LinearEpilogue::kSiluAndMul;
}

}  // namespace

bool supports_linear_wgmma(const LinearGpuCall& p) {
  const bool is_half = p.weight_element == Element::kFloat16;
  const bool is_stored = p.epilogue == LinearEpilogue::kStore || is_gated(p);
  const bool takes_bias =
      p.bias == nullptr || p.bias_element == p.y_element || p.bias_element == Element::kFloat32;
  const auto is_row = [](int64_t elements) {
    return elements * kElementSize % kCopyAlignment == 0;
  };
  const int width = is_gated(p) ? p.out_features / 2 : p.out_features;
  return (is_half || p.weight_element == Element::kBFloat16) && p.x_element == p.weight_element &&
         p.y_element == p.weight_element && is_stored && takes_bias && p.num_rows >= 1 &&
         width >= 1 && is_row(width) && p.in_features >= 1 && is_row(p.in_features) &&
         is_row(p.x_stride) && is_row(p.y_stride) && is_multiple(p.x, kCopyAlignment) &&
         is_multiple(p.weight, kCopyAlignment) && is_multiple(p.y, kCopyAlignment) &&
         is_multiple(p.bias, kCopyAlignment);
}

gpuError_t launch_linear_wgmma(const LinearGpuCall& p, gpuStream_t stream) {
  if (!supports_linear_wgmma(p)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  constexpr int kTileRows = device::kWgmmaTileRows, kTileColumns = device::kWgmmaTileColumns;
  const int width = is_gated(p) ? p.out_features / 2 : p.out_features;
  const int tile_width = is_gated(p) ? kTileColumns / 2 : kTileColumns;
  device::WgmmaArgs args{};
  args.params = p;
  args.params.overlaps_previous = p.overlaps_previous && p.num_rows < device::kManyRows;
  args.weight_stride = is_gated(p) ? width : kTileColumns / 2;
  args.num_row_steps = divide_up(p.num_rows, kTileRows * device::kWgmmaClusterSize);
  args.num_column_steps = divide_up(width, tile_width);
  args.group_rows = kGroupRows;
  args.num_clusters = std::min(args.num_row_steps * args.num_column_steps,
                               num_multiprocessors / device::kWgmmaClusterSize);
  args.num_chunks = divide_up(p.in_features * kElementSize, kPanelSize);
  if (!encode_linear_rows(
          &args.weight, p, p.weight, p.out_features, p.in_features, kTileColumns / 2) ||
      !encode_linear_rows(&args.x, p, p.x, p.num_rows, p.x_stride, kTileRows)) {
    return cudaErrorNotSupported;
  }
  return p.weight_element == Element::kFloat16 ? device::launch_wgmma_float16(args, stream)
                                               : device::launch_wgmma_bfloat16(args, stream);
}

}  // namespace atom::ops
