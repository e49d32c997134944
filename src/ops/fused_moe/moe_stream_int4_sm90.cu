#include "ops/fused_moe/moe_stream_launch_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_moe_stream_int4(const MoeStreamArgs& args,
                                  const MoeStreamInstance& instance,
                                  bool overlaps_previous,
                                  int num_blocks,
                                  gpuStream_t stream) {
  return args.matrices.scale_columns == 32
             ? launch_moe_stream_of<Int4<32>>(args, instance, overlaps_previous, num_blocks, stream)
             : launch_moe_stream_of<Int4<128>>(
                   args, instance, overlaps_previous, num_blocks, stream);
}

}  // namespace atom::ops::device
