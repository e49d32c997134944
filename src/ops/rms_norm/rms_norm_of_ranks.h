// RMSNorm on a GPU of the residual and a sum of two ranks, of which each has a part: the ranks
// exchange their parts in packets (comm/device/) inside the kernel of the norm.
#pragma once

#include "comm/device/mailbox.h"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::ops {

// Whether there is a kernel for it, which depends on what is the same on all ranks alone: for rows
// of bfloat16 that a block can hold, where adds_up_in_norm().
bool supports_rms_norm_of_ranks(const PeerView& view, const RmsNormLaunch& params);
// `params` with a residual and everything aligned to 16 bytes. x is this rank's part, and stays.
// The sum is rounded as that of Communicator::all_reduce(), and what is made of it has the bits of
// launch_rms_norm().
gpuError_t launch_rms_norm_of_ranks(const PeerView& view,
                                    const RmsNormLaunch& params,
                                    gpuStream_t stream);
// Brings the kernels' code to the current card.
gpuError_t load_rms_norm_of_ranks();

}  // namespace atom::ops
