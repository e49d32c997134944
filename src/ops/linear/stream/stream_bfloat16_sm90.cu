#include "ops/linear/stream/stream_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_stream_bfloat16(const StreamArgs& args,
                                  int slice_size,
                                  int num_blocks,
                                  gpuStream_t stream) {
  return launch_stream<StreamMath<BFloat16, BFloat16>>(args, slice_size, num_blocks, stream);
}

}  // namespace atom::ops::device
