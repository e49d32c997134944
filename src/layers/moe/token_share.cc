#include "layers/moe/token_share.h"

#include <algorithm>

#include "base/rounding.h"
#include "tensor/copy_rows.h"

namespace atom {

TokenShare token_share(const ParallelContext& parallel,
                       int expert_rank,
                       const ForwardContext& context) {
  const int64_t num_ranks = parallel.tensor_parallel_size;
  const int64_t num_tokens = context.tokens_of_ranks[expert_rank];
  const int64_t largest = ceil_div(num_tokens, num_ranks);
  const int64_t begin = std::min(num_tokens, expert_rank % num_ranks * largest);
  return {begin, std::min(num_tokens - begin, largest)};
}

int64_t largest_share(const ParallelContext& parallel, const ForwardContext& context) {
  int64_t largest = 1;
  for (int rank = 0; rank < parallel.expert_size(); ++rank) {
    largest = std::max(largest, token_share(parallel, rank, context).count);
  }
  return largest;
}

void join_shares(const ParallelContext& parallel,
                 const Tensor& part,
                 const Tensor& out,
                 const ForwardContext& context) {
  const Stream& stream = context.stream;
  const int64_t num_ranks = parallel.tensor_parallel_size, num_tokens = out.size(0);
  if (num_ranks == 1) return copy_rows(stream, part.narrow(0, 0, num_tokens), out);
  const int64_t largest = ceil_div(num_tokens, num_ranks);
  const Workspace::Scope scope(context.workspace);
  const Tensor all = context.workspace.tensor({num_ranks, largest, out.size(1)}, out.dtype());
  parallel.all_gather(stream, part.narrow(0, 0, largest), all);
  const Tensor rows = all.view({num_ranks * largest, out.size(1)});
  copy_rows(stream, rows.narrow(0, 0, num_tokens), out);
}

}  // namespace atom
