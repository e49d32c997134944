// Inside latent attention for Hopper: what the host decides of a launch.
#pragma once

#include "ops/mla_attention/sm90/join.cuh"
#include "ops/mla_attention/sm90/mla_sm90.h"
#include "tensor/gpu_api.h"

namespace atom::ops::mla_device {

// 0 without a device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

inline int num_blocks(const MlaSm90Tuning& tuning) {
  const int blocks =
      tuning.max_blocks > 0 ? tuning.max_blocks : device_attribute(cudaDevAttrMultiProcessorCount);
  return blocks < kMostParts ? blocks : kMostParts;
}

// So many items are even enough as they are.
inline bool is_split(const MlaAttentionArgs& args, int blocks) {
  return num_places(args) <= 6 * blocks;
}

inline int64_t num_parts(int blocks) {
  return int64_t{2} * blocks * kRows;
}

inline Work make_work(const MlaAttentionArgs& args, void* workspace, const MlaSm90Tuning& tuning) {
  const int blocks = num_blocks(tuning);
  Work work = {};
  work.params = args;
  work.is_split = is_split(args, blocks);
  work.min_share = tuning.min_share;
  work.num_places = num_places(args);
  if (work.is_split) {
    work.partial_out = static_cast<float*>(workspace);
    work.partial_softmax = reinterpret_cast<float2*>(work.partial_out + num_parts(blocks) * kRank);
    work.line = reinterpret_cast<int32_t*>(work.partial_softmax + num_parts(blocks));
  }
  return work;
}

// Of the kernel that joins rows.
inline dim3 grid_of_join(const Work& work) {
  constexpr int kMostGrid = 2048;
  int slices = kRows;
  while (slices > 8 && slices * work.num_places > kMostGrid) slices /= 2;
  return dim3(work.num_places, slices);
}

}  // namespace atom::ops::mla_device
