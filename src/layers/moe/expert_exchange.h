// How a step's tokens come to the experts that have to compute them, on whatever ranks these are,
// and the results back: prepare, experts, finalize.
//
//   ExpertRows rows = exchange.prepare(x, choice, out, context);
//   experts.forward(rows.x, rows.choice, rows.y, context);
//   exchange.finalize(rows, out, context);
//
// Both halves are collectives of the ranks that share the experts: every rank calls them as often
// and in the same order, also one whose pass has no token that counts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/moe/moe_router.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"

namespace atom {

// What the experts of this rank compute: in memory of the workspace, but for what was passed on.
struct ExpertRows {
  Tensor x;                  // [num_rows, hidden_size]
  MoeRouter::Choice choice;  // [num_rows, k]; ids that no rank, or another one, computes may be -1
  Tensor y;                  // [num_rows, hidden_size]: where this rank's sums go
  // With an exchange by all_to_all(): how many rows go from one to the other, [from * size + to],
  // and which of this rank's tokens go to each rank, ascending.
  std::vector<int32_t> counts = {};
  std::vector<std::vector<int32_t>> sent = {};
  // With the same between GPUs: the choices of this rank's tokens.
  Tensor own_ids = {};
};

class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;

  // x [num_tokens, hidden_size] of this rank's copy with what its router chose -> the rows that
  // come here. `out` [num_tokens, hidden_size] is that of finalize(), and may be where they are
  // summed.
  virtual ExpertRows prepare(const Tensor& x,
                             const MoeRouter::Choice& choice,
                             const Tensor& out,
                             const ForwardContext& context) const = 0;
  // out = the sum over all ranks of what their experts gave for each of the copy's tokens, with the
  // same bits on all ranks of the copy; or this rank's part of that sum.
  virtual void finalize(const ExpertRows& rows,
                        const Tensor& out,
                        const ForwardContext& context) const = 0;
  // finalize() leaves this rank's part, to which its user may add others before the sum over the
  // copy's ranks.
  virtual bool leaves_parts() const { return false; }
};

// What an exchange knows of the experts' places.
struct ExpertOwners {
  // By id of a routed expert: the rank that has it; empty where every rank has a part of each.
  std::vector<int32_t> rank_of;
  int64_t num_shared = 0;  // ids behind those: experts that every rank has
};

// The one that fits the ranks of `build`: for a copy that has its experts alone the tokens are on
// all of its ranks already, and only sums travel. What cannot be is an error of `build`.
std::unique_ptr<ExpertExchange> make_expert_exchange(BuildContext& build, ExpertOwners owners);

}  // namespace atom
