// Multi-head attention over the paged KV cache (MHA, GQA and MQA), causal, with an optional sliding
// window.
#pragma once

#include <memory>

#include "layers/attention/kv_scales.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

class Attention : public Module {
 public:
  // Registers the layer's KV cache with `build`. `sliding_window` 0 = every earlier token.
  Attention(BuildContext& build, int64_t num_kv_heads, int64_t head_dim, int64_t sliding_window);

  // Writes k and v into the cache, then attends. q [num_tokens, num_heads, head_dim], k and v
  // [num_tokens, num_kv_heads, head_dim] -> workspace tensor [num_tokens, num_heads * head_dim].
  Tensor forward(const Tensor& q,
                 const Tensor& k,
                 const Tensor& v,
                 const ForwardContext& context) const;

 private:
  size_t cache_index_;
  float scale_;
  int64_t sliding_window_;
  std::unique_ptr<KVScales> kv_scales_;  // null unless the cache is in FP8
};

}  // namespace atom
