#include "layers/moe/expert_balancer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "layers/moe/expert_slots.h"

namespace atom {

ExpertBalancer::ExpertBalancer(const EplbConfig& config,
                               const ParallelContext& parallel,
                               std::vector<FusedMoE*> layers,
                               const Stream& stream)
    : config_(config),
      rank_(parallel.expert_rank()),
      group_(parallel.expert_group()),
      layers_(std::move(layers)) {
  int64_t num_counts = 0;
  for (FusedMoE* layer : layers_) {
    num_counts += layer->slots()->placement().num_experts;
    // Each rank has that of the experts that it began with, and is to get others.
    for (const Tensor& scale : layer->input_scales()) {
      group_->all_reduce(stream, scale, ReduceOp::kMax);
    }
  }
  if (num_counts > 0) counts_ = Tensor::empty({num_counts}, DType::kInt64);
  start_window();
}

void ExpertBalancer::start_window() {
  if (num_steps_ != std::max(0, config_.rebalance_interval - config_.load_window_size)) return;
  for (FusedMoE* layer : layers_) layer->slots()->start_counting();
}

void ExpertBalancer::end_step(const Stream& stream) {
  if (layers_.empty()) return;
  ++num_steps_;
  if (!pending_.empty()) {
    carry_out(pending_.front(), stream);
    pending_.pop_front();
  } else if (num_steps_ >= config_.rebalance_interval) {
    plan(stream);
    num_steps_ = 0;
  }
  start_window();
}

void ExpertBalancer::plan(const Stream& stream) {
  auto* all = counts_.data<int64_t>();
  for (FusedMoE* layer : layers_) all = std::ranges::copy(layer->slots()->take_counts(), all).out;
  group_->all_reduce(stream, counts_);
  // What a group that has failed left there is nobody's count.
  if (!group_->status().ok()) return;
  const int64_t* begin = counts_.data<int64_t>();
  for (FusedMoE* layer : layers_) {
    const ExpertPlacement& now = layer->slots()->placement();
    const std::vector<int64_t> counts(begin, begin + now.num_experts);
    begin += now.num_experts;
    note(counts, now);
    if (balancedness(counts, now) >= config_.rebalance_min_balancedness) continue;
    ExpertPlacement next = balanced_placement(counts, now);
    if (next != now) pending_.push_back({layer, std::move(next)});
  }
}

void ExpertBalancer::note(const std::vector<int64_t>& counts, const ExpertPlacement& placement) {
  const std::vector<double> loads = loads_of_ranks(counts, placement);
  num_tokens_ += static_cast<uint64_t>(std::llround(loads[rank_]));
  num_largest_tokens_ += static_cast<uint64_t>(std::llround(*std::ranges::max_element(loads)));
}

void ExpertBalancer::carry_out(const Change& change, const Stream& stream) {
  ExpertSlots& slots = *change.layer->slots();
  std::vector<Tensor> aside;
  for (const ExpertMove& move : plan_moves(slots.placement(), change.placement)) {
    carry_out(move, *change.layer, &aside, stream);
  }
  slots.set_placement(change.placement);
}

void ExpertBalancer::carry_out(const ExpertMove& move,
                               const FusedMoE& layer,
                               std::vector<Tensor>* aside,
                               const Stream& stream) {
  const int64_t slots_of_rank = layer.slots()->placement().slots_of_rank();
  const auto rank_of = [&](int32_t slot) {
    return slot == ExpertMove::kAside ? move.aside_rank : static_cast<int>(slot / slots_of_rank);
  };
  const auto tensors_of = [&](int32_t slot) {
    return slot == ExpertMove::kAside ? *aside : layer.slot_tensors(slot % slots_of_rank);
  };
  const int from = rank_of(move.from), to = rank_of(move.to);
  if (from != rank_ && to != rank_) return;
  if (move.to == ExpertMove::kAside && aside->empty()) {
    for (const Tensor& tensor : layer.slot_tensors(0)) {
      aside->push_back(Tensor::empty(tensor.shape(), tensor.dtype()));
    }
  }
  if (from != rank_) {
    for (const Tensor& tensor : tensors_of(move.to)) group_->receive(stream, tensor, from);
  } else if (to != rank_) {
    for (const Tensor& tensor : tensors_of(move.from)) group_->send(stream, tensor, to);
  } else {
    const std::vector<Tensor> sources = tensors_of(move.from), targets = tensors_of(move.to);
    for (size_t i = 0; i < sources.size(); ++i) {
      std::memcpy(targets[i].raw_data(), sources[i].raw_data(), sources[i].num_bytes());
    }
  }
  if (to == rank_ && move.to != ExpertMove::kAside) ++num_moves_;
}

ExpertBalancer::Figures ExpertBalancer::figures() const {
  return {num_tokens_.load(), num_largest_tokens_.load(), num_moves_.load()};
}

}  // namespace atom
