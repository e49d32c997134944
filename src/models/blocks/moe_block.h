// A mixture of experts as feed-forward: a router chooses some of many experts for each token.
#pragma once

#include <string>

#include "layers/moe/fused_moe.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

struct MoeBlockOptions {
  std::string router_name = "gate";  // in the checkpoint
  MoeRouterOptions router;
  FusedMoEOptions experts;
};

class MoeBlock : public FeedForward {
 public:
  MoeBlock(BuildContext& build, const MoeBlockOptions& options);

  ActivationFormat wanted() const override { return {}; }
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  MoeRouter router_;
  FusedMoE experts_;
};

}  // namespace atom
