// Inside rms_norm_of_ranks: rows by several blocks each, which a cluster of Hopper's is.
#pragma once

#include "ops/rms_norm/rms_norm_of_ranks.h"

namespace atom::ops {

// How rows are cut: by as many threads, with as many vectors of 16 bytes each.
struct RowCut {
  int threads, vectors;
};

// Whether the current card has clusters.
bool has_row_clusters();
// `teams` rows at a time, each by `blocks` blocks (1, 2, 4 or 8) that share the cut's threads: at
// least a warp each.
gpuError_t launch_rms_norm_of_ranks_by_clusters(const PeerView& view,
                                                const RmsNormLaunch& params,
                                                const RowCut& cut,
                                                int blocks,
                                                int teams,
                                                gpuStream_t stream);
// Brings the kernels' code to the current card, which has clusters.
gpuError_t load_rms_norm_of_ranks_by_clusters();

}  // namespace atom::ops
