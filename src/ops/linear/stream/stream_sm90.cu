// The host side of the streaming linear on Hopper (stream/stream_sm90.cuh).
#include "ops/linear/stream/stream_sm90.h"

#include <algorithm>

#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/stream/launch.h"

namespace atom::ops {
namespace {

constexpr int kTileRows = 16;
constexpr int kStepSize = 64;  // bytes

bool is_16_bit(Element element) {
  return element == Element::kBFloat16 || element == Element::kFloat16;
}

bool has_elements(const LinearGpuCall& p) {
  const bool float8 = p.weight_element == Element::kFloat8E4M3;
  const bool inputs = float8 ? p.x_element != Element::kFloat32
                             : is_16_bit(p.weight_element) && p.x_element == p.weight_element;
  const bool output = p.y_element == Element::kFloat32 ? p.epilogue == LinearEpilogue::kStore
                                                       : is_16_bit(p.y_element);
  return inputs && output;
}

}  // namespace

LinearStreamTuning linear_stream_tuning(const LinearGpuCall&) {
  return {};
}

bool supports_linear_stream_sm90(const LinearGpuCall& p) {
  const bool gated = p.epilogue == LinearEpilogue::kSiluAndMul;
  return has_elements(p) && p.num_rows >= 1 && p.num_rows <= kMaxStreamRows &&
         p.out_features >= 1 && (!gated || p.out_features % 2 == 0) && p.in_features >= 1 &&
         p.in_features * bytes_of(p.weight_element) % kStepSize == 0 &&
         p.x_stride * bytes_of(p.x_element) % kCopyAlignment == 0 &&
         is_multiple(p.x, kCopyAlignment) && is_multiple(p.weight, kCopyAlignment);
}

gpuError_t launch_linear_stream_sm90(const LinearGpuCall& params,
                                     const LinearStreamTuning& tuning,
                                     gpuStream_t stream) {
  if (!supports_linear_stream_sm90(params)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  const bool gated = params.epilogue == LinearEpilogue::kSiluAndMul;
  const int tile_features = gated ? kTileRows / 2 : kTileRows;
  const int num_features = gated ? params.out_features / 2 : params.out_features;
  device::StreamArgs args{};
  args.params = params;
  args.row_size = static_cast<int>(params.in_features * bytes_of(params.weight_element));
  args.num_tiles = divide_up(num_features, tile_features);
  args.l2_prefetch_units = tuning.l2_prefetch_units;
  const int num_blocks = std::min(args.num_tiles, num_multiprocessors);
  if (params.weight_element == Element::kFloat8E4M3) {
    return device::launch_stream_float8(args, tuning.slice_size, num_blocks, stream);
  }
  return params.weight_element == Element::kFloat16
             ? device::launch_stream_float16(args, tuning.slice_size, num_blocks, stream)
             : device::launch_stream_bfloat16(args, tuning.slice_size, num_blocks, stream);
}

gpuError_t launch_linear_stream_sm90(const LinearGpuCall& params, gpuStream_t stream) {
  return launch_linear_stream_sm90(params, linear_stream_tuning(params), stream);
}

}  // namespace atom::ops
