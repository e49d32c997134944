// The experts of a mixture of experts: y = sum over a token's choices of
//   weight * (W_down activation(W_gate_up x + b) + b_down)
// Shared experts, which every token has, may be more slots of the same stacks: the router then
// appends them to each choice (MoeRouting::num_shared).
//
// Tensors of a checkpoint are slices of two parameters, gate_up_proj.weight and down_proj.weight:
//   "{e}.gate", "{e}.up" [I, H] and "{e}.down" [H, I] of expert e,
//   "shared.gate", "shared.up" [num_shared I, H] and "shared.down" [H, num_shared I],
//   or "" of all experts together: [E, 2 I, H] and [E, H, I].
// map_experts() sends the names of a family there.
//
// Each of several ranks has a part of every expert's intermediate dimension or, in expert-parallel
// groups, some experts whole. Shared experts then are on all ranks, which take turns with tokens
// (MoeRouting::shared_rank); where ranks have tokens of their own each has those of its tokens.
//
// Experts that may be moved (ParallelContext::moves_experts) stand in slots: choose_slots() makes
// a router's choice of experts one of slots, which exchanges and forward() take for experts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/activation.h"
#include "layers/moe/expert_exchange.h"
#include "layers/moe/expert_map.h"
#include "layers/moe/expert_slots.h"
#include "layers/moe/expert_stack.h"
#include "layers/moe/moe_router.h"
#include "nn/weight_mapping.h"
#include "ops/fused_moe/gated_activation.h"

namespace atom {

struct FusedMoEOptions {
  int64_t num_experts = 0;
  int64_t num_shared = 0;         // slots of shared experts behind them
  int64_t intermediate_size = 0;  // of one expert, all ranks together
  ops::GatedActivation activation;
  bool has_bias = false;
  // The checkpoint has all experts together as [E, H, 2 I] and [E, I, H]: y = x W.
  bool is_transposed = false;
};

class FusedMoE : public Module {
 public:
  FusedMoE(BuildContext& build, const FusedMoEOptions& options);

  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;

  // Where experts may be moved: choice.ids become those of slots, and count. Else nothing.
  void choose_slots(const MoeRouter::Choice& choice, const ForwardContext& context) const;
  ExpertSlots* slots() const { return slots_.get(); }  // null unless they may be moved
  // All that slot `slot` of this rank has of its expert, in the same order for each: contiguous
  // memory, which may be written between passes.
  std::vector<Tensor> slot_tensors(int64_t slot) const;
  // The scales that activations of all experts have, [1] float32 each; none without.
  std::vector<Tensor> input_scales() const;

  // With rows, which routers and kernels for other numbers of tokens read.
  ActivationFormat wanted() const;
  // Up to how many tokens rows alone do, since the kernels quantize them.
  int64_t most_row_tokens() const;

  // x, y [num_tokens, hidden_size], not the same memory. y is this rank's part of the sum.
  void forward(const Activation& x,
               const MoeRouter::Choice& choice,
               const Tensor& y,
               const ForwardContext& context) const;

 private:
  struct Layouts;  // of the stacks
  FusedMoE(BuildContext& build, const FusedMoEOptions& options, const Layouts& layouts);

  ops::GatedActivation activation_;
  bool adds_down_bias_;                 // once for all ranks that have a part of an expert
  std::unique_ptr<ExpertSlots> slots_;  // null unless experts may be moved
  ExpertMap map_;                       // where experts are spread
  Tensor places_;                       // ops::ExpertWeights' of it; meta until finish_load
  ExpertStack gate_up_proj_;
  ExpertStack down_proj_;
};

// Where the experts of such a layer are.
ExpertOwners expert_owners(const BuildContext& build, const FusedMoEOptions& options);

// What a checkpoint calls the three matrices of expert {e}.
struct ExpertNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string shared;  // the module of the shared experts; empty: they are no slots of the stack
};

// Adds the rules by which tensors "experts.{e}.<gate>" and so on are slices of the stacks.
void map_experts(const ExpertNames& names, WeightMapping* mapping);

}  // namespace atom
