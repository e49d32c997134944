// Inside token_dispatch: checked calls, for the files that launch kernels.
#pragma once

#include "ops/token_dispatch/token_dispatch.h"

namespace atom::ops {

// Where the parts of DispatchedTokens::memory begin, in bytes, and where it ends: the same on all
// ranks.
struct DispatchOffsets {
  int64_t ids, weights;
  int64_t rows, scales;  // x, or codes and their scales
  int64_t end;
};

struct DispatchCall {
  const ExpertRanges& experts;
  const Tensor &x, &ids, &weights;
  const DispatchedTokens& to;
  const DispatchOffsets& at;
};
void dispatch_tokens_cuda(const Stream& stream,
                          const Communicator& ranks,
                          const DispatchCall& call);

struct CombineCall {
  const ExpertRanges& experts;
  const Tensor &ids, &came_ids, &y, &out;
};
void combine_tokens_cuda(const Stream& stream, const Communicator& ranks, const CombineCall& call);

}  // namespace atom::ops
