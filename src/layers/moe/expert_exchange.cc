#include "layers/moe/expert_exchange.h"

#include <utility>

#include "layers/moe/all_to_all_exchange.h"
#include "layers/moe/direct_exchange.h"
#include "layers/moe/gather_exchange.h"

namespace atom {
namespace {

// A copy's ranks have the same tokens: each computes what it has the experts, or the parts, for.
class SummedExchange : public ExpertExchange {
 public:
  ExpertRows prepare(const Tensor& x,
                     const MoeRouter::Choice& choice,
                     const Tensor& out,
                     const ForwardContext& /*context*/) const override {
    return {.x = x, .choice = choice, .y = out};
  }
  void finalize(const ExpertRows& rows,
                const Tensor& out,
                const ForwardContext& /*context*/) const override {
    CHECK(rows.y.raw_data() == out.raw_data());
  }
  bool leaves_parts() const override { return true; }
};

// GPUs with experts are on other nodes as well, whose memory this one does not see.
bool goes_through_host(const BuildContext& build) {
  return !build.device.is_cpu() && build.parallel.experts->goes_through_host();
}

bool is_all_to_all(ExpertDispatch dispatch) {
  return dispatch == ExpertDispatch::kAllToAll || dispatch == ExpertDispatch::kAllToAllFloat8;
}

}  // namespace

std::unique_ptr<ExpertExchange> make_expert_exchange(BuildContext& build, ExpertOwners owners) {
  const ParallelContext& parallel = build.parallel;
  if (!parallel.copies_share_experts()) return std::make_unique<SummedExchange>();
  const bool over_nodes = goes_through_host(build);
  if (over_nodes && is_all_to_all(parallel.dispatch)) {
    build.fail(unimplemented(
        "--expert-dispatch: {} sends tokens to GPUs of other nodes, which only gather does",
        build.module_name));
  }
  const bool is_direct = !build.device.is_cpu() && !over_nodes &&
                         ops::supports_token_dispatch(build.config.hidden_size, build.dtype);
  // Every rank has a part of each expert, and so needs all tokens.
  if (owners.rank_of.empty() || parallel.dispatch == ExpertDispatch::kGather ||
      (parallel.dispatch == ExpertDispatch::kAuto && !is_direct)) {
    return std::make_unique<GatherExchange>(parallel, std::move(owners));
  }
  const bool in_float8 = parallel.dispatch == ExpertDispatch::kAllToAllFloat8;
  if (build.device.is_cpu()) {
    return std::make_unique<AllToAllExchange>(parallel, std::move(owners), in_float8);
  }
  if (!is_direct) {
    build.fail(unimplemented(
        "--expert-dispatch: {} sends tokens of {} values, which are no whole vectors of 16 bytes; "
        "take gather",
        build.module_name,
        build.config.hidden_size));
  }
  return std::make_unique<DirectExchange>(parallel, owners, in_float8);
}

}  // namespace atom
