// The core of a Gated DeltaNet layer, between its projections: a causal convolution over queries,
// keys and values, the gated delta rule, and the norm that the gate z multiplies. It keeps two
// states per sequence: the convolution's last inputs and the recurrence's matrix.
//
// Tensor parallelism splits by key heads, each with its value heads: every rank has consecutive
// ones.
#pragma once

#include "layers/activation.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"

namespace atom {

struct GatedDeltaNetSizes {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;  // a multiple of num_k_heads
  int64_t head_k_dim = 0;
  int64_t head_v_dim = 0;
  int64_t conv_kernel_size = 0;

  int64_t key_dim() const { return num_k_heads * head_k_dim; }
  int64_t value_dim() const { return num_v_heads * head_v_dim; }
  int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
  GatedDeltaNetSizes of_one_rank(int world) const {
    GatedDeltaNetSizes local = *this;
    local.num_k_heads /= world;
    local.num_v_heads /= world;
    return local;
  }
};

// What the gates are made of, or what that is the product of.
struct DeltaNetGates {
  Tensor b;  // [num_tokens, num_v_heads]
  Tensor a;  // likewise
  // Where b and a are undefined: [num_tokens, hidden_size], and [2 * num_v_heads, hidden_size],
  // those of b first.
  Tensor x;
  const ops::LinearWeight* weight = nullptr;
};

class GatedDeltaNet : public Module {
 public:
  // `sizes` are those of all ranks together. Registers the layer's states with `build`.
  GatedDeltaNet(BuildContext& build, const GatedDeltaNetSizes& sizes);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // This rank's heads; row strides are allowed. -> in the workspace, [num_tokens, value_dim]: codes
  // when `format` asks for them alone, else rows.
  Activation forward(const Tensor& qkv,  // [num_tokens, conv_dim]: queries, keys, values
                     const Tensor& z,    // [num_tokens, value_dim]
                     const DeltaNetGates& gates,
                     const ActivationFormat& format,
                     const ForwardContext& context) const;

 private:
  GatedDeltaNetSizes sizes_;  // of this rank
  StateHandle states_;        // "conv" and "recurrent"
  Parameter conv_weight_;     // [conv_dim, 1, conv_kernel_size] float32
  Parameter a_log_;           // [num_v_heads] float32
  Parameter dt_bias_;         // [num_v_heads] float32
  Parameter norm_weight_;     // [head_v_dim] float32
  Tensor conv_columns_;       // [conv_kernel_size, conv_dim] float32; meta until finish_load
  float eps_;
  bool leaves_codes_;
};

}  // namespace atom
