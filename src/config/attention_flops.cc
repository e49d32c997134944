#include "config/attention_flops.h"

namespace atom {
namespace {

int64_t size_of(const ModelConfig& config, const char* key) {
  const Result<int64_t> size = config.extension().get_int(key, 0, 1 << 20, 0);
  return size.ok() ? *size : 0;
}

}  // namespace

PairFlops attention_pair_flops(const ModelConfig& config) {
  const int64_t rank = size_of(config, "kv_lora_rank"), rope = size_of(config, "qk_rope_head_dim");
  if (rank == 0) return {4 * config.q_size(), 4 * config.q_size()};
  const int64_t key = size_of(config, "qk_nope_head_dim") + rope;
  const int64_t value = size_of(config, "v_head_dim");
  const int64_t heads = config.num_attention_heads;
  return {2 * heads * (rank + rope + rank), 2 * heads * (key + value)};
}

}  // namespace atom
