#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_128x128_2x1_free(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 128, 2, 1, 1, false>>(args, stream);
}

gpuError_t launch_blocks_128x128_1x1_free(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 128, 1, 1, 1, false>>(args, stream);
}

gpuError_t launch_blocks_128x128_1x1x2_free(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 128, 1, 1, 2, false>>(args, stream);
}

}  // namespace atom::ops::device
