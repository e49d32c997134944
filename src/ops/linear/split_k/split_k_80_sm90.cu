#include "ops/linear/split_k/split_k_sm90.cuh"

namespace atom::ops::device {

gpuError_t launch_split_k_80x1(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<80, 1>>(args, stream);
}

gpuError_t launch_split_k_80x2(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<80, 2>>(args, stream);
}

gpuError_t launch_split_k_80x4(const SplitKArgs& args, gpuStream_t stream) {
  return split_k::launch_split_k<split_k::Shape<80, 4>>(args, stream);
}

}  // namespace atom::ops::device
