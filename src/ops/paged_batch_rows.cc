#include "ops/paged_batch_rows.h"

#include <algorithm>

namespace atom::ops {
namespace {

void check_values(const PagedBatchArgs& args) {
  CHECK(args.query_start[0] >= 0);
  CHECK(args.query_start[args.num_sequences] <= args.num_tokens);
  for (int64_t sequence = 0; sequence < args.num_sequences; ++sequence) {
    const int64_t num_queries = args.query_start[sequence + 1] - args.query_start[sequence];
    const int64_t seq_len = args.seq_lens[sequence];
    CHECK(num_queries >= 0);
    if (num_queries == 0) continue;
    CHECK(num_queries <= seq_len);
    CHECK(seq_len <= args.max_blocks * args.block_size);
    const int32_t* table = args.block_tables + sequence * args.block_table_stride;
    for (int64_t block = 0; block * args.block_size < seq_len; ++block) {
      CHECK(table[block] >= 0);
      CHECK(table[block] < args.num_blocks);
    }
  }
}

}  // namespace

PagedBatchArgs checked_paged_batch(TensorCheck& check,
                                   const Stream& stream,
                                   const PagedBatch& batch,
                                   int64_t num_tokens,
                                   int64_t num_blocks,
                                   int64_t block_size) {
  check.tensor("block_tables", batch.block_tables, {"S", "max_blocks"}, DType::kInt32)
      .contiguous("seq_lens", batch.seq_lens, {"S"}, DType::kInt32)
      .contiguous("query_start", batch.query_start, {"S+1"}, DType::kInt32);
  CHECK(check.size("S+1") == check.size("S") + 1);
  if (batch.settled_lens.defined()) {
    check.contiguous("settled_lens", batch.settled_lens, {"S"}, DType::kInt32);
  }
  CHECK(block_size > 0);
  const PagedBatchArgs args{
      .block_tables = static_cast<const int32_t*>(batch.block_tables.raw_data()),
      .query_start = static_cast<const int32_t*>(batch.query_start.raw_data()),
      .seq_lens = static_cast<const int32_t*>(batch.seq_lens.raw_data()),
      .settled_lens = static_cast<const int32_t*>(batch.settled_lens.raw_data()),
      .block_table_stride = batch.block_tables.stride(0),
      .num_sequences = check.size("S"),
      .num_tokens = num_tokens,
      .max_blocks = check.size("max_blocks"),
      .num_blocks = num_blocks,
      .block_size = block_size,
  };
  if (!stream.is_dry_run() && stream.device().type == DeviceType::kCpu) check_values(args);
  return args;
}

PagedRow find_row(const PagedBatchArgs& args, int64_t token) {
  const int32_t* end = args.query_start + args.num_sequences + 1;
  const int64_t sequence = std::upper_bound(args.query_start, end, token) - args.query_start - 1;
  if (sequence < 0 || sequence >= args.num_sequences) return {nullptr, -1};
  return {args.block_tables + sequence * args.block_table_stride,
          std::max<int64_t>(args.seq_lens[sequence] - args.query_start[sequence + 1] + token, -1)};
}

}  // namespace atom::ops
