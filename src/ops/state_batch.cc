#include "ops/state_batch.h"

namespace atom::ops {
namespace {

void check_values(const StateBatchArgs& args) {
  CHECK(args.query_start[0] >= 0);
  CHECK(args.query_start[args.num_sequences] <= args.num_tokens);
  for (int64_t sequence = 0; sequence < args.num_sequences; ++sequence) {
    const int64_t num_queries = args.query_start[sequence + 1] - args.query_start[sequence];
    const int64_t slot = args.state_slots[sequence];
    CHECK(num_queries >= 0);
    // What has no slot is padding, of any number of rows.
    CHECK((slot == -1 || args.max_queries == 0 || num_queries <= args.max_queries));
    CHECK((slot == -1 || num_queries <= args.seq_lens[sequence]));
    CHECK(slot >= -1);
    CHECK(slot < args.num_slots);
    if (args.token_slots == nullptr || slot < 0 || num_queries == 0) continue;
    const int32_t* kept = args.token_slots + args.query_start[sequence];
    CHECK(kept[num_queries - 1] >= 0);
    for (int64_t token = 0; token < num_queries; ++token) {
      CHECK(kept[token] < args.num_slots);
      if (token + 1 < num_queries) CHECK((kept[token] >= 0) == (kept[num_queries - 2] >= 0));
    }
  }
}

}  // namespace

StateBatchArgs checked_state_batch(TensorCheck& check,
                                   const Stream& stream,
                                   const StateBatch& batch,
                                   int64_t num_tokens,
                                   int64_t num_slots) {
  check.contiguous("seq_lens", batch.seq_lens, {"S"}, DType::kInt32)
      .contiguous("state_slots", batch.state_slots, {"S"}, DType::kInt32)
      .contiguous("query_start", batch.query_start, {"S+1"}, DType::kInt32);
  CHECK(check.size("S+1") == check.size("S") + 1);
  const bool keeps_states = batch.token_slots.defined();
  if (keeps_states) {
    check.contiguous("token_slots", batch.token_slots, {"kept tokens"}, DType::kInt32);
    CHECK(check.size("kept tokens") == num_tokens);
  }
  const StateBatchArgs args{
      .query_start = static_cast<const int32_t*>(batch.query_start.raw_data()),
      .seq_lens = static_cast<const int32_t*>(batch.seq_lens.raw_data()),
      .state_slots = static_cast<const int32_t*>(batch.state_slots.raw_data()),
      .token_slots =
          keeps_states ? static_cast<const int32_t*>(batch.token_slots.raw_data()) : nullptr,
      .num_sequences = check.size("S"),
      .num_tokens = num_tokens,
      .num_slots = num_slots,
      .max_queries = batch.max_queries,
  };
  if (!stream.is_dry_run() && stream.device().type == DeviceType::kCpu) check_values(args);
  return args;
}

}  // namespace atom::ops
