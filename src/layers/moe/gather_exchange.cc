#include "layers/moe/gather_exchange.h"

#include "layers/moe/token_share.h"
#include "tensor/copy_rows.h"
#include "tensor/fill.h"

namespace atom {
namespace {

// Gathers a share of the rows of `from`, all ranks' shares filled up to `largest` rows with bytes
// `filling`.
Tensor gather(const ParallelContext& parallel,
              const Tensor& from,
              const TokenShare& share,
              int64_t largest,
              uint8_t filling,
              const ForwardContext& context) {
  const Stream& stream = context.stream;
  const int64_t size = from.size(1), world = parallel.expert_size();
  const Tensor all = context.workspace.tensor({world, largest, size}, from.dtype());
  const Workspace::Scope scope(context.workspace);
  const Tensor part = context.workspace.tensor({largest, size}, from.dtype());
  if (!stream.is_dry_run()) {
    const Tensor own = part.narrow(0, 0, share.count);
    copy_rows(stream, from.narrow(0, share.begin, share.count), own);
    fill_bytes(stream, part.narrow(0, share.count, largest - share.count), filling);
    parallel.experts->all_gather(stream, part, all);
  }
  return all.view({world * largest, size});
}

}  // namespace

ExpertRows GatherExchange::prepare(const Tensor& x,
                                   const MoeRouter::Choice& choice,
                                   const Tensor& /*out*/,
                                   const ForwardContext& context) const {
  const TokenShare share = token_share(parallel_, parallel_.expert_rank(), context);
  const int64_t largest = largest_share(parallel_, context);
  ExpertRows rows;
  rows.y = context.workspace.tensor({parallel_.expert_size() * largest, x.size(1)}, x.dtype());
  rows.x = gather(parallel_, x, share, largest, 0, context);
  // Ids of -1 are nobody's.
  rows.choice.ids = gather(parallel_, choice.ids, share, largest, 0xff, context);
  rows.choice.weights = gather(parallel_, choice.weights, share, largest, 0, context);
  if (!context.stream.is_dry_run()) drop_shared(rows.choice.ids, context);
  return rows;
}

void GatherExchange::drop_shared(const Tensor& ids, const ForwardContext& context) const {
  if (owners_.rank_of.empty() || owners_.num_shared == 0) return;
  constexpr uint8_t kNobody = 0xff;  // ids of -1
  const int64_t largest = largest_share(parallel_, context);
  const int64_t begin = parallel_.expert_rank() * largest, end = begin + largest;
  const Tensor shared = ids.narrow(1, ids.size(1) - owners_.num_shared, owners_.num_shared);
  fill_bytes(context.stream, shared.narrow(0, 0, begin), kNobody);
  fill_bytes(context.stream, shared.narrow(0, end, ids.size(0) - end), kNobody);
}

void GatherExchange::finalize(const ExpertRows& rows,
                              const Tensor& out,
                              const ForwardContext& context) const {
  const Workspace::Scope scope(context.workspace);
  const int64_t world = parallel_.expert_size(), size = out.size(1);
  const int64_t largest = rows.y.size(0) / world;
  const Tensor part = context.workspace.tensor({largest, size}, out.dtype());
  if (!context.stream.is_dry_run()) {
    parallel_.experts->reduce_scatter(context.stream, rows.y.view({world, largest, size}), part);
  }
  join_shares(parallel_, part, out, context);
}

}  // namespace atom
