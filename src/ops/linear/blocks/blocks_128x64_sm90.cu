#include "ops/linear/blocks/blocks_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_blocks_128x64_1x1(const BlocksArgs& args, gpuStream_t stream) {
  return blocks::launch_blocks<blocks::Shape<1, 64, 1>>(args, stream);
}

}  // namespace atom::ops::device
