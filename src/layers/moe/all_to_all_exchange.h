// The exchange in which a token goes to each rank that has at least one of its experts, once, and
// what the rank's experts give for it comes back: all_to_all() twice. A token's results are added
// in the order of ranks, in float32, with one rounding.
//
// Rows travel in turns of equal size for each pair of ranks, the largest that any pair needs. In
// FP8 a row's values are codes with a scale for each 128 of them; results stay in the model's
// dtype.
#pragma once

#include "layers/moe/expert_exchange.h"

namespace atom {

class AllToAllExchange : public ExpertExchange {
 public:
  AllToAllExchange(const ParallelContext& parallel, ExpertOwners owners, bool in_float8);

  ExpertRows prepare(const Tensor& x,
                     const MoeRouter::Choice& choice,
                     const Tensor& out,
                     const ForwardContext& context) const override;
  void finalize(const ExpertRows& rows,
                const Tensor& out,
                const ForwardContext& context) const override;

 private:
  // By rank, the tokens of this rank's share that go there.
  std::vector<std::vector<int32_t>> tokens_for_ranks(const Tensor& ids,
                                                     const ForwardContext& context) const;
  // [from * size + to], of all ranks.
  std::vector<int32_t> exchange_counts(const std::vector<std::vector<int32_t>>& sent,
                                       const ForwardContext& context) const;
  // Ids that this rank does not compute of the rows that came.
  void drop_others(const ExpertRows& rows) const;
  // Sends the rows of `parts` that `sent` names, and writes those that come to `received`, which
  // has as many tensors of the same widths and dtypes.
  void send_rows(const std::vector<std::vector<int32_t>>& sent,
                 const std::vector<Tensor>& parts,
                 const std::vector<int32_t>& counts,
                 const std::vector<Tensor>& received,
                 const ForwardContext& context) const;

  const ParallelContext parallel_;
  const ExpertOwners owners_;
  const bool in_float8_;
};

}  // namespace atom
