// The exchange by all_to_all() between GPUs that reach each other's memory: a token is written to
// the ranks that have some of its experts, and its results are read there (ops/token_dispatch/).
// Every rank has places for the tokens of all, so shapes depend on numbers of tokens alone, and a
// step can be recorded.
#pragma once

#include "layers/moe/expert_exchange.h"
#include "ops/token_dispatch/token_dispatch.h"

namespace atom {

class DirectExchange : public ExpertExchange {
 public:
  DirectExchange(const ParallelContext& parallel, const ExpertOwners& owners, bool in_float8);

  ExpertRows prepare(const Tensor& x,
                     const MoeRouter::Choice& choice,
                     const Tensor& out,
                     const ForwardContext& context) const override;
  void finalize(const ExpertRows& rows,
                const Tensor& out,
                const ForwardContext& context) const override;

 private:
  const ParallelContext parallel_;
  const ops::ExpertRanges experts_;
  const bool in_float8_;
};

}  // namespace atom
