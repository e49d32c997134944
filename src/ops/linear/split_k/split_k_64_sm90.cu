#include "ops/linear/split_k/split_k_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_split_k_64x1(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<64, 1>>(args, stream);
}

gpuError_t launch_split_k_64x2(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<64, 2>>(args, stream);
}

gpuError_t launch_split_k_64x4(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<64, 4>>(args, stream);
}

}  // namespace atom::ops::device
