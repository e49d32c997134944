// Rotates queries and keys by their positions. One per model: every layer of it shares the table.
#pragma once

#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "ops/rotary_embedding/rotary_embedding.h"

namespace atom {

class RotaryEmbedding : public Module {
 public:
  explicit RotaryEmbedding(const BuildContext& build);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override { return table_.num_bytes(); }

  // q [num_tokens, num_heads, head_dim], k [num_tokens, num_kv_heads, head_dim], both in place.
  void forward(const Tensor& q, const Tensor& k, const ForwardContext& context) const;

  // [max_model_len, rotary_dim] float32, cos then sin; meta until finish_load
  const Tensor& table() const { return table_; }
  static constexpr ops::RotaryStyle kStyle = ops::RotaryStyle::kNeoX;

 private:
  RopeConfig rope_;
  Tensor table_;
};

}  // namespace atom
