#include "layers/rotary_embedding.h"

#include "layers/rope_table.h"
#include "tensor/device_arena.h"

namespace atom {

RotaryEmbedding::RotaryEmbedding(const BuildContext& build)
    : rope_(build.config.rope),
      table_(Tensor::meta({build.max_model_len, rope_.rotary_dim}, DType::kFloat32)) {}

Status RotaryEmbedding::finish_load(const Stream& stream) {
  const Tensor table = Tensor::empty(table_.shape(), table_.dtype());
  fill_rope_table(stream, rope_frequencies(rope_, table.size(0)), table);
  table_ = resident_copy(stream, table);
  return {};
}

void RotaryEmbedding::forward(const Tensor& q,
                              const Tensor& k,
                              const ForwardContext& context) const {
  ops::rotary_embedding(context.stream, context.positions, table_, q, k, kStyle);
}

}  // namespace atom
