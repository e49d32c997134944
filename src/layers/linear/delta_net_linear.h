// The input projections of a Gated DeltaNet layer, split by key heads, each with its value heads:
// queries, keys, values and the gate z in one multiplication, the heads' b and a in another.
// Checkpoints store them head after head or, in Qwen3-Next, in groups of a key head's rows; in
// memory they are always sections of all heads.
#pragma once

#include "layers/attention/gated_delta_net.h"
#include "layers/linear/linear_base.h"

namespace atom {

enum class DeltaNetRows {
  kSections,  // slices "qkv" (all heads' q, then k, then v) and "z"; "b" and "a"
  kGroups,    // one tensor each, of groups [q | k | its v | its z]; [its b | its a]
};

class QkvzParallelLinear : public LinearBase {
 public:
  // `sizes` of all ranks together.
  QkvzParallelLinear(BuildContext& build, const GatedDeltaNetSizes& sizes, DeltaNetRows rows);

  struct Output {
    Tensor qkv;  // [num_tokens, conv_dim] of this rank, row stride that of both
    Tensor z;    // [num_tokens, value_dim], likewise
  };
  Output forward(const Activation& x, const ForwardContext& context) const;

 private:
  int64_t conv_dim_;  // of this rank
};

class BaParallelLinear : public LinearBase {
 public:
  BaParallelLinear(BuildContext& build, const GatedDeltaNetSizes& sizes, DeltaNetRows rows);

  // b and a of this rank.
  DeltaNetGates forward(const Activation& x, const ForwardContext& context) const;
  // What they are products of, where the layer's core may multiply it itself, else b and a.
  DeltaNetGates gates(const Activation& x, const ForwardContext& context) const;
};

}  // namespace atom
