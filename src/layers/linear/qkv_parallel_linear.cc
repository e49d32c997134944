#include "layers/linear/qkv_parallel_linear.h"

#include <algorithm>

namespace atom {
namespace {

// With fewer KV heads than ranks neighbors hold the same: rank r has head r / (ranks / heads).
ShardPart kv_part(const BuildContext& build, int64_t num_kv_heads) {
  const int size = build.parallel.tensor_parallel_size;
  const int world = static_cast<int>(std::min<int64_t>(size, num_kv_heads));
  return {build.parallel.tensor_parallel_rank / (size / world), world};
}

// Ranks that a number of KV heads is split among; the others repeat them.
void require_kv_split(BuildContext& build, int64_t num_kv_heads) {
  const int64_t size = build.parallel.tensor_parallel_size;
  if (num_kv_heads >= size) return require_even_split(build, num_kv_heads, "key-value heads");
  if (size % num_kv_heads == 0) return;
  build.fail(
      unimplemented("--tensor-parallel-size {}: {} has {} key-value heads, of which {} ranks "
                    "cannot have one each "
                    "evenly",
                    size,
                    build.module_name,
                    num_kv_heads,
                    size));
  build.parallel = {};
}

LinearPartition make_partition(BuildContext& build,
                               int64_t in_features,
                               int64_t num_heads,
                               int64_t q_rows,
                               int64_t num_kv_heads,
                               int64_t head_dim) {
  require_even_split(build, num_heads, "attention heads");
  require_kv_split(build, num_kv_heads);
  const ShardPart kv = kv_part(build, num_kv_heads);
  const int64_t kv_rows = num_kv_heads * head_dim;
  LinearPartition partition;
  partition.in_features = in_features;
  partition.out_slices = {
      {"q", q_rows, tensor_parallel_part(build)}, {"k", kv_rows, kv}, {"v", kv_rows, kv}};
  return partition;
}

}  // namespace

QKVParallelLinear::QKVParallelLinear(BuildContext& build,
                                     int64_t in_features,
                                     int64_t num_heads,
                                     int64_t num_kv_heads,
                                     int64_t head_dim,
                                     bool has_bias,
                                     bool has_gate)
    : LinearBase(build,
                 make_partition(build,
                                in_features,
                                num_heads,
                                num_heads * head_dim * (has_gate ? 2 : 1),
                                num_kv_heads,
                                head_dim),
                 has_bias),
      num_heads_(num_heads / build.parallel.tensor_parallel_size),
      num_kv_heads_(num_kv_heads / kv_part(build, num_kv_heads).world),
      head_dim_(head_dim),
      has_gate_(has_gate) {}

QKVParallelLinear::Output QKVParallelLinear::forward(const Activation& x,
                                                     const ForwardContext& context) const {
  const Tensor qkv = LinearBase::forward(x, context);
  const int64_t num_tokens = qkv.size(0);
  const int64_t q_heads = num_heads_ * (has_gate_ ? 2 : 1);
  const Tensor heads = qkv.view({num_tokens, q_heads + 2 * num_kv_heads_, head_dim_});
  const Tensor k = heads.narrow(1, q_heads, num_kv_heads_);
  const Tensor v = heads.narrow(1, q_heads + num_kv_heads_, num_kv_heads_);
  if (!has_gate_) return {heads.narrow(1, 0, num_heads_), k, v, Tensor()};
  const Tensor pairs =
      qkv.view({num_tokens, num_heads_ + num_kv_heads_, 2 * head_dim_}).narrow(1, 0, num_heads_);
  return {pairs.narrow(2, 0, head_dim_), k, v, pairs.narrow(2, head_dim_, head_dim_)};
}

}  // namespace atom
