#include "ops/linear/ordered/ordered_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_ordered_float16(const OrderedArgs& args, int num_blocks, gpuStream_t stream) {
  return ordered::launch_ordered<Half>(args, num_blocks, stream);
}

}  // namespace atom::ops::device
