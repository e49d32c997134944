#include "ops/fused_moe/moe_stream_launch_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_moe_stream_int8(const MoeStreamArgs& args,
                                  const MoeStreamInstance& instance,
                                  bool overlaps_previous,
                                  int num_blocks,
                                  gpuStream_t stream) {
  return launch_moe_stream_of<Int8>(args, instance, overlaps_previous, num_blocks, stream);
}

}  // namespace atom::ops::device
