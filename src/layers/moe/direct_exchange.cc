#include "layers/moe/direct_exchange.h"

#include <algorithm>

#include "layers/moe/token_share.h"

namespace atom {
namespace {

ops::ExpertRanges ranges_of(const ExpertOwners& owners, int num_ranks) {
  CHECK(std::ranges::is_sorted(owners.rank_of));
  ops::ExpertRanges ranges;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto count = std::ranges::count(owners.rank_of, rank);
    ranges.first[rank + 1] = ranges.first[rank] + static_cast<int32_t>(count);
  }
  return ranges;
}

}  // namespace

DirectExchange::DirectExchange(const ParallelContext& parallel,
                               const ExpertOwners& owners,
                               bool in_float8)
    : parallel_(parallel),
      experts_(ranges_of(owners, parallel.expert_size())),
      in_float8_(in_float8) {}

ExpertRows DirectExchange::prepare(const Tensor& x,
                                   const MoeRouter::Choice& choice,
                                   const Tensor& /*out*/,
                                   const ForwardContext& context) const {
  const int64_t largest = largest_share(parallel_, context);
  const TokenShare share = token_share(parallel_, parallel_.expert_rank(), context);
  const auto own = [&](const Tensor& all) { return all.narrow(0, share.begin, share.count); };
  Workspace& workspace = context.workspace;
  ExpertRows rows;
  rows.y = workspace.tensor({parallel_.expert_size() * largest, x.size(1)}, x.dtype());
  const ops::DispatchedTokens to = ops::dispatched_tokens(
      parallel_.expert_size(), largest, x, choice.ids.size(1), in_float8_, workspace);
  rows.x = to.x;
  rows.choice = {to.ids, to.weights};
  rows.own_ids = own(choice.ids);
  if (context.stream.is_dry_run()) return rows;
  ops::dispatch_tokens(
      context.stream, *parallel_.experts, experts_, own(x), rows.own_ids, own(choice.weights), to);
  return rows;
}

void DirectExchange::finalize(const ExpertRows& rows,
                              const Tensor& out,
                              const ForwardContext& context) const {
  const auto combine = [&](const Tensor& sums) {
    if (context.stream.is_dry_run()) return;
    ops::combine_tokens(
        context.stream, *parallel_.experts, experts_, rows.own_ids, rows.choice.ids, rows.y, sums);
  };
  if (parallel_.tensor_parallel_size == 1 && out.is_contiguous()) return combine(out);
  const Workspace::Scope scope(context.workspace);
  const Tensor part =
      context.workspace.tensor({largest_share(parallel_, context), out.size(1)}, out.dtype());
  combine(part.narrow(0, 0, rows.own_ids.size(0)));
  join_shares(parallel_, part, out, context);
}

}  // namespace atom
