#include "ops/linear/stream/stream_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_stream_float8(const StreamArgs& args,
                                int slice_size,
                                int num_blocks,
                                gpuStream_t stream) {
  switch (args.params.x_element) {
    case Element::kBFloat16:
      return launch_stream<StreamMath<Float8, BFloat16>>(args, slice_size, num_blocks, stream);
    case Element::kFloat16:
      return launch_stream<StreamMath<Float8, Half>>(args, slice_size, num_blocks, stream);
    default:
      return launch_stream<StreamMath<Float8, Float8>>(args, slice_size, num_blocks, stream);
  }
}

}  // namespace atom::ops::device
