// Tokens to the ranks that have their experts, and the results back, between GPUs that reach each
// other's memory: dispatch, experts, combine. Each of both is one kernel of fixed shapes, so steps
// with them can be recorded.
//
// Every rank has `places` places for the tokens of each rank. Token i of rank r goes to place [r,
// i] of each rank that has at least one of its experts, once, with its choices and weights; there
// it is one of the rows that the experts compute. A place that no token came to has ids of -1
// alone, and rows of no defined content. Combining reads the results of a token from the ranks that
// it went to and adds them in the order of ranks, in float32 with one rounding.
//
// Both are collectives: every rank of the group calls them as often, in the same order, with the
// same number of places, also one without tokens.
#pragma once

#include <array>
#include <cstdint>

#include "comm/communicator.h"
#include "comm/device/mailbox.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// Which ids are whose: rank r has [first[r], first[r + 1]). Ids from first[size] on are experts
// that every rank has: of a token that is its own rank.
struct ExpertRanges {
  std::array<int32_t, kMaxPeers + 1> first = {};
};

// What came to a rank: places of rank 0, then of rank 1 and so on.
struct DispatchedTokens {
  Tensor x;        // [size * places, hidden_size]
  Tensor ids;      // [size * places, k] int32: experts of this rank, -1 for others
  Tensor weights;  // [size * places, k] float32
  Tensor memory;   // bytes that hold ids and weights, and x, or its codes with their scales
  bool in_float8 = false;
};

// Whether there are kernels for rows of this width: whole vectors of 16 bytes of float32, float16
// or bfloat16, in a build for GPUs.
bool supports_token_dispatch(int64_t hidden_size, DType dtype);

// In memory of the workspace, for tokens like x's rows. With `in_float8` they travel as quantize()
// makes FP8 of them, with a scale for each 128 values, and are x's type again where they arrive.
DispatchedTokens dispatched_tokens(int num_ranks,
                                   int64_t places,
                                   const Tensor& x,  // [n, hidden_size]
                                   int64_t k,
                                   bool in_float8,
                                   Workspace& workspace);

void dispatch_tokens(const Stream& stream,
                     const Communicator& ranks,
                     const ExpertRanges& experts,
                     const Tensor& x,        // [n, hidden_size], n <= places; contiguous, as all
                     const Tensor& ids,      // [n, k] int32, -1: none
                     const Tensor& weights,  // [n, k] float32
                     const DispatchedTokens& to);

void combine_tokens(const Stream& stream,
                    const Communicator& ranks,
                    const ExpertRanges& experts,
                    const Tensor& ids,       // [n, k] of dispatch_tokens()
                    const Tensor& came_ids,  // [size * places, k] of what came
                    const Tensor& y,         // [size * places, hidden_size]: of this rank's experts
                    const Tensor& out);      // [n, hidden_size], of y's type

}  // namespace atom::ops
