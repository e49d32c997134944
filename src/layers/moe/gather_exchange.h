// The exchange in which every rank sees the tokens of all: all_gather(), then reduce_scatter() of
// the sums. It takes few operations, and suits few tokens, or experts of which a rank has a part of
// each.
#pragma once

#include "layers/moe/expert_exchange.h"

namespace atom {

class GatherExchange : public ExpertExchange {
 public:
  GatherExchange(const ParallelContext& parallel, ExpertOwners owners)
      : parallel_(parallel), owners_(std::move(owners)) {}

  ExpertRows prepare(const Tensor& x,
                     const MoeRouter::Choice& choice,
                     const Tensor& out,
                     const ForwardContext& context) const override;
  void finalize(const ExpertRows& rows,
                const Tensor& out,
                const ForwardContext& context) const override;

 private:
  // Leaves experts that every rank has to the ranks whose tokens chose them.
  void drop_shared(const Tensor& ids, const ForwardContext& context) const;

  const ParallelContext parallel_;
  const ExpertOwners owners_;
};

}  // namespace atom
