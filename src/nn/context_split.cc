#include "nn/context_split.h"

#include <cstring>

#include "nn/forward_context.h"

namespace atom {
namespace {

// Rows of one task.
constexpr int64_t kRowGrain = 64;

// Calls copy(slot's row of the plane, row of `rows`) for each slot of a rank.
template <typename Copy>
void for_each_row(const Stream& stream,
                  const int32_t* slots,
                  const Tensor& plane,
                  const Tensor& rows,
                  const Copy& copy) {
  const int64_t bytes = rows.size(1);
  char* cached = static_cast<char*>(plane.raw_data());
  char* packed = static_cast<char*>(rows.raw_data());
  stream.pool().parallel_for(rows.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (slots[row] >= 0) copy(cached + slots[row] * bytes, packed + row * bytes, bytes);
    }
  });
}

void share_plane(const ContextSplit& split, const Tensor& plane, const ForwardContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t num_ranks = split.slots.size(0), num_rows = split.slots.size(1);
  const int64_t bytes = plane.num_bytes() / (plane.size(0) * plane.size(1));
  const Tensor mine = context.workspace.tensor({num_rows, bytes}, DType::kInt8);
  const Tensor all = context.workspace.tensor({num_ranks, num_rows, bytes}, DType::kInt8);
  if (context.stream.is_dry_run()) return;
  CHECK(context.stream.device().is_cpu());
  CHECK(plane.is_contiguous());
  const int32_t* slots = split.slots.data<int32_t>();
  for_each_row(context.stream,
               slots + split.rank * num_rows,
               plane,
               mine,
               [](const char* cached, char* packed, int64_t size) {
                 std::memcpy(packed, cached, static_cast<size_t>(size));
               });
  split.ranks->all_gather(context.stream, mine, all);
  // A group that has failed has brought nothing that could be believed.
  if (!split.ranks->status().ok()) return;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    if (rank == split.rank) continue;
    for_each_row(context.stream,
                 slots + rank * num_rows,
                 plane,
                 all.narrow(0, rank, 1).view({num_rows, bytes}),
                 [](char* cached, const char* packed, int64_t size) {
                   std::memcpy(cached, packed, static_cast<size_t>(size));
                 });
  }
}

}  // namespace

void share_rows(const ForwardContext& context, CacheHandle cache) {
  if (context.split == nullptr) return;
  for (const Tensor& plane : context.cache(cache)) share_plane(*context.split, plane, context);
}

}  // namespace atom
