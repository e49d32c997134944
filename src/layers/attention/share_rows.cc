#include "layers/attention/share_rows.h"

#include "nn/context_split.h"
#include "ops/embedding/embedding.h"
#include "ops/kv_cache_write/kv_cache_write.h"

namespace atom {
namespace {

// Rows are moved whole, whatever they hold.
constexpr DType kUnit = DType::kBFloat16;

void share_plane(const ContextSplit& split, const Tensor& plane, const ForwardContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t num_slots = plane.size(0) * plane.size(1);
  const int64_t num_ranks = split.slots.size(0), num_rows = split.slots.size(1);
  const int64_t row_bytes = plane.num_bytes() / num_slots;
  CHECK(row_bytes % dtype_size(kUnit) == 0);
  const int64_t width = row_bytes / dtype_size(kUnit);
  const Tensor mine = context.workspace.tensor({num_rows, width}, kUnit);
  const Tensor all = context.workspace.tensor({num_ranks, num_rows, width}, kUnit);
  if (context.stream.is_dry_run()) return;
  CHECK(plane.is_contiguous());
  const Tensor rows(plane.raw_data(), kUnit, {num_slots, width}, nullptr, plane.device());
  ops::embedding_of_part(context.stream,
                         split.slots.narrow(0, split.rank, 1).view({num_rows}),
                         rows,
                         /*first_id=*/0,
                         mine);
  split.ranks->all_gather(context.stream, mine, all);
  // A group that has failed has brought nothing that could be believed.
  if (!split.ranks->status().ok()) return;
  ops::kv_cache_write(context.stream,
                      all.view({num_ranks * num_rows, 1, width}),
                      /*v=*/{},
                      split.slots.view({num_ranks * num_rows}),
                      rows.view({plane.size(0), plane.size(1), 1, width}),
                      /*v_cache=*/{});
}

}  // namespace

void share_rows(const ForwardContext& context, CacheHandle cache) {
  if (context.split == nullptr) return;
  for (const Tensor& plane : context.cache(cache)) share_plane(*context.split, plane, context);
}

}  // namespace atom
