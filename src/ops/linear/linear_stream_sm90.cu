// The host side of the streaming linear on Hopper (linear_stream_sm90.cuh).
#include <algorithm>

#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/linear_stream_cuda.h"
#include "ops/linear/linear_stream_launch.h"

namespace atom::ops {
namespace {

constexpr int kTileRows = 16;
constexpr int kStepSize = 64;  // bytes

}  // namespace

LinearStreamTuning linear_stream_tuning(const LinearStreamParams&) {
  return {};
}

bool supports_linear_stream_sm90(const LinearStreamParams& p) {
  return supports_linear_stream(p) &&
         p.in_features * gpu_element_size(p.weight_element) % kStepSize == 0;
}

gpuError_t launch_linear_stream_sm90(const LinearStreamParams& params,
                                     const LinearStreamTuning& tuning,
                                     gpuStream_t stream) {
  if (!supports_linear_stream_sm90(params)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  const bool gated = params.epilogue == StreamEpilogue::kSiluAndMul;
  const int tile_features = gated ? kTileRows / 2 : kTileRows;
  const int num_features = gated ? params.out_features / 2 : params.out_features;
  device::StreamArgs args{};
  args.params = params;
  args.row_size = static_cast<int>(params.in_features * gpu_element_size(params.weight_element));
  args.num_tiles = divide_up(num_features, tile_features);
  args.l2_prefetch_units = tuning.l2_prefetch_units;
  const int num_blocks = std::min(args.num_tiles, num_multiprocessors);
  if (params.weight_element == GpuElement::kFloat8E4M3) {
    return device::launch_stream_float8(args, tuning.slice_size, num_blocks, stream);
  }
  return params.weight_element == GpuElement::kFloat16
             ? device::launch_stream_float16(args, tuning.slice_size, num_blocks, stream)
             : device::launch_stream_bfloat16(args, tuning.slice_size, num_blocks, stream);
}

gpuError_t launch_linear_stream_sm90(const LinearStreamParams& params, gpuStream_t stream) {
  return launch_linear_stream_sm90(params, linear_stream_tuning(params), stream);
}

}  // namespace atom::ops
