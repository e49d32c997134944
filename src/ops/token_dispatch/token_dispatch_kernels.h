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

struct CombineLaunch {
  const int32_t* ids;       // [num_tokens, k]
  const int32_t* came_ids;  // [ranks * places, k]: of what came to this rank
  const void* y;            // [ranks * places, size]
  void* out;                // [num_tokens, size]
  ExpertFirsts experts;
  int32_t num_tokens, places, k, size;
  Element element;
};

// By address: of any number of tokens. Ranks tell each other where their memory is and write and
// read it.
gpuError_t launch_dispatch_by_address(const PeerView& view,
                                      const DispatchLaunch& params,
                                      gpuStream_t stream);
gpuError_t launch_combine_by_address(const PeerView& view,
                                     const CombineLaunch& params,
                                     gpuStream_t stream);

// In packets: of few tokens, which wait for each other once.
struct PacketRows {
  int32_t places, k, size;
  Element element;
};
bool fits_packets(const PacketRows& rows);
gpuError_t launch_dispatch_by_packets(const PeerView& view,
                                      const DispatchLaunch& params,
                                      gpuStream_t stream);
gpuError_t launch_combine_by_packets(const PeerView& view,
                                     const CombineLaunch& params,
                                     gpuStream_t stream);

// Brings the kernels' code to the current card.
gpuError_t load_token_dispatch_by_address();
gpuError_t load_token_dispatch_by_packets();

}  // namespace atom::ops
