// Inside token_dispatch: what its kernels take.
#pragma once

#include <stdint.h>

#include "comm/device/mailbox.h"
#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct ExpertFirsts {
  int32_t first[kMaxPeers + 1];  // ExpertRanges
};

// DispatchOffsets, for kernels.
struct DispatchPlaces {
  int64_t ids, weights, rows, scales;
};

struct DispatchLaunch {
  const void* x;         // [num_tokens, size]
  const int32_t* ids;    // [num_tokens, k]
  const float* weights;  // [num_tokens, k]
  void* memory;          // this rank's, of places of all ranks
  void* out;             // with FP8: x of what came, [ranks * places, size]; else null
  DispatchPlaces at;
  ExpertFirsts experts;
  int32_t num_tokens, places, k, size;
  Element element;
};
gpuError_t launch_dispatch(const PeerView& view, const DispatchLaunch& params, gpuStream_t stream);

struct CombineLaunch {
  const int32_t* ids;  // [num_tokens, k]
  const void* y;       // [ranks * places, size]
  void* out;           // [num_tokens, size]
  ExpertFirsts experts;
  int32_t num_tokens, places, k, size;
  Element element;
};
gpuError_t launch_combine(const PeerView& view, const CombineLaunch& params, gpuStream_t stream);

// Brings the kernels' code to the current card.
gpuError_t load_token_dispatch();

}  // namespace atom::ops
