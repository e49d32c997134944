// A mixture of experts as feed-forward: a router chooses some of many experts for each token, and
// shared ones may stand beside them that every token has, one with a gate or several without: slots
// of the same stacks; apart, where the checkpoint quantizes them otherwise than the routed ones or
// they have another width.
#pragma once

#include <memory>
#include <string>

#include "layers/moe/fused_moe.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gated_shared_expert.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

struct MoeBlockOptions {
  std::string router_name = "gate";  // in the checkpoint
  MoeRouterOptions router;
  FusedMoEOptions experts;
  int64_t gated_shared_size = 0;  // width of "shared_expert"; 0: there is none
};

class MoeBlock : public FeedForward {
 public:
  MoeBlock(BuildContext& build, const MoeBlockOptions& options);

  ActivationFormat wanted(int64_t num_tokens) const override;
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;
  bool leaves_parts() const override { return exchange_->leaves_parts(); }

 private:
  // What shared experts that are apart give; this rank's part of it.
  void add_shared(const Activation& x, const Tensor& out, const ForwardContext& context) const;
  // All of it.
  void add_whole_shared(const Activation& x,
                        const Tensor& out,
                        const ForwardContext& context) const;

  const ParallelContext parallel_;
  const bool has_slots_;  // of shared experts
  MoeRouter router_;
  FusedMoE experts_;
  std::unique_ptr<ExpertExchange> exchange_;
  std::unique_ptr<GatedMLP> shared_experts_;         // all in one; null unless they are apart
  std::unique_ptr<GatedSharedExpert> gated_shared_;  // null without
};

}  // namespace atom
