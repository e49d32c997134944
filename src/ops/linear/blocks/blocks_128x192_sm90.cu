#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_128x192_2x1(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 192, 2>>(args, stream);
}

gpuError_t launch_blocks_128x192_1x2(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 192, 1, 2>>(args, stream);
}

}  // namespace atom::ops::device
