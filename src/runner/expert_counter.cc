#include "runner/expert_counter.h"

#include <algorithm>
#include <vector>

#include "ops/moe_route/moe_route_kinds.h"

namespace atom {
namespace {

Tensor on_host(const Stream& stream, const Tensor& tensor) {
  if (stream.device().is_cpu()) return tensor;
  const Tensor host = Tensor::empty(tensor.shape(), tensor.dtype());
  stream.queue().copy(host.raw_data(), tensor.raw_data(), tensor.num_bytes());
  stream.queue().synchronize();
  return host;
}

}  // namespace

void ExpertCounter::on_experts(const Stream& stream,
                               const Tensor& logits,
                               const ops::MoeRouting& routing,
                               const Tensor& ids,
                               const Tensor&) {
  if (stream.is_dry_run()) return;
  const Tensor chosen = on_host(stream, ids);
  std::vector<int64_t> counts(static_cast<size_t>(logits.size(1)));
  for (int64_t token = 0; token < chosen.size(0); ++token) {
    const int32_t* row = chosen.data<int32_t>() + token * chosen.size(1);
    for (int64_t i = 0; i < routing.top_k; ++i) ++counts[row[i]];
  }
  ++num_layers_;
  num_chosen_ += static_cast<int64_t>(counts.size()) - std::ranges::count(counts, 0);
  num_choices_ += chosen.size(0) * routing.top_k;
  largest_ += std::ranges::max(counts);
}

ExpertLoad ExpertCounter::load() const {
  if (num_layers_ == 0) return {};
  const auto mean = [&](int64_t sum) {
    return static_cast<double>(sum) / static_cast<double>(num_layers_);
  };
  return {num_layers_, mean(num_chosen_), mean(num_choices_), mean(largest_)};
}

}  // namespace atom
