// Inside token_dispatch: whose experts are whose, on a GPU.
#pragma once

#include "comm/device/exchange.cuh"
#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"
#include "ops/token_dispatch/token_dispatch_kernels.h"

namespace atom::ops::device {

__device__ inline int rank_of(const ExpertFirsts& experts, const PeerView& view, int32_t id) {
  if (id >= experts.first[view.size]) return view.rank;
  int rank = 0;
  while (id >= experts.first[rank + 1]) ++rank;
  return rank;
}

// A bit for each rank that a token of this one goes to, by a whole warp.
__device__ inline uint32_t ranks_of(const ExpertFirsts& experts,
                                    const PeerView& view,
                                    const int32_t* ids,
                                    int k) {
  uint32_t ranks = 0;
  for (int j = static_cast<int>(threadIdx.x) % kWarpSize; j < k; j += kWarpSize) {
    const int32_t id = gpu_load_from_l2(ids + j);
    if (id >= 0) ranks |= 1u << rank_of(experts, view, id);
  }
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) ranks |= exchange(ranks, mask);
  return ranks;
}

template <typename T>
__device__ inline T* part_of(void* memory, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(memory) + offset);
}

// body.template operator()<T>().
template <typename Body>
inline gpuError_t with_element(Element element, const Body& body) {
  switch (element) {
    case Element::kFloat32:
      return body.template operator()<float>();
    case Element::kFloat16:
      return body.template operator()<Half>();
    case Element::kBFloat16:
      return body.template operator()<BFloat16>();
    default:
      return ATOM_GPU(ErrorInvalidValue);
  }
}

}  // namespace atom::ops::device
