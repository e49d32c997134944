// The router of a mixture of experts: which experts compute a token, and by what weights their
// results are added. Its weight is never quantized, and its logits are float32: a rounding would
// choose other experts.
#pragma once

#include <memory>

#include "layers/activation.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"
#include "ops/moe_route/moe_route_kinds.h"

namespace atom {

struct MoeRouterOptions {
  int64_t num_experts = 0;
  ops::MoeRouting routing;
  bool has_bias = false;
  bool has_selection_bias = false;  // "e_score_correction_bias", which counts for the choice alone
  // With routing.gates_shared the gates of shared experts are slice kSharedGate of the weight.
};

class MoeRouter : public Module {
 public:
  static constexpr const char* kSharedGate = "shared";

  MoeRouter(const BuildContext& build, const MoeRouterOptions& options);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  ActivationFormat wanted() const { return {}; }

  struct Choice {
    Tensor ids;      // [num_tokens, top_k + num_shared] int32
    Tensor weights;  // [num_tokens, top_k + num_shared] float32
  };
  // x [num_tokens, hidden_size] -> workspace tensors.
  Choice forward(const Tensor& x, const ForwardContext& context) const;

 private:
  ops::MoeRouting routing_;
  Parameter weight_;    // [num_logits_ and rows of zeros, hidden_size], empty after finish_load
  int64_t num_logits_;  // num_experts + num_gates()
  ops::LinearWeight packed_;
  std::unique_ptr<Parameter> bias_;            // [num_experts] float32; null without
  std::unique_ptr<Parameter> selection_bias_;  // [num_experts] float32; null without
};

}  // namespace atom
