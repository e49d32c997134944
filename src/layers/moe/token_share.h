// Which of a copy's tokens one of its ranks takes to the experts: ranks of a copy have the same
// tokens, and no token is to be computed twice.
#pragma once

#include <cstdint>

#include "nn/forward_context.h"
#include "nn/parallel_context.h"

namespace atom {

struct TokenShare {
  int64_t begin = 0;
  int64_t count = 0;
};

// The share of the rank `expert_rank`, in this pass.
TokenShare token_share(const ParallelContext& parallel,
                       int expert_rank,
                       const ForwardContext& context);

// The largest of any rank in this pass, at least 1.
int64_t largest_share(const ParallelContext& parallel, const ForwardContext& context);

// `part`: this rank's share of out's rows, in front of rows that do not count up to
// largest_share(). out becomes all of them on every rank of the copy.
void join_shares(const ParallelContext& parallel,
                 const Tensor& part,
                 const Tensor& out,
                 const ForwardContext& context);

}  // namespace atom
