#include "layers/moe/expert_balancer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "layers/moe/expert_slots.h"
#include "tensor/device_arena.h"

namespace atom {
namespace {

// The bytes that any layer has at most, by place in FusedMoE::slot_tensors().
std::vector<int64_t> largest_tensors(const std::vector<FusedMoE*>& layers) {
  std::vector<int64_t> largest;
  for (const FusedMoE* layer : layers) {
    const std::vector<Tensor> tensors = layer->slot_tensors(0);
    largest.resize(std::max(largest.size(), tensors.size()), 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      largest[i] = std::max(largest[i], tensors[i].num_bytes());
    }
  }
  return largest;
}

void copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  if (stream.device().is_cpu()) {
    std::memcpy(to.raw_data(), from.raw_data(), from.num_bytes());
  } else {
    stream.queue().copy(to.raw_data(), from.raw_data(), from.num_bytes());
  }
}

}  // namespace

int64_t ExpertBalancer::num_bytes(const std::vector<FusedMoE*>& layers) {
  int64_t sum = 0;
  for (const int64_t bytes : largest_tensors(layers)) sum += bytes + DeviceArena::kAlignment;
  return sum;
}

ExpertBalancer::ExpertBalancer(const EplbConfig& config,
                               const ParallelContext& parallel,
                               std::vector<FusedMoE*> layers,
                               const Stream& stream)
    : config_(config),
      rank_(parallel.expert_rank()),
      group_(parallel.expert_group()),
      layers_(std::move(layers)) {
  int64_t num_counts = 0;
  for (FusedMoE* layer : layers_) num_counts += layer->slots()->placement().num_experts;
  if (num_counts > 0) counts_ = Tensor::empty({num_counts}, DType::kInt64);
  for (const int64_t bytes : largest_tensors(layers_)) {
    aside_.push_back(resident_tensor(stream, {bytes}, DType::kUInt8));
  }
  share_scales(stream);
  start_window();
}

void ExpertBalancer::share_scales(const Stream& stream) const {
  const Stream host(&stream.pool());
  for (FusedMoE* layer : layers_) {
    // Each rank has that of the experts that it began with, and is to get others.
    for (const Tensor& scale : layer->input_scales()) {
      const Tensor largest = Tensor::empty(scale.shape(), scale.dtype());
      copy(stream, scale, largest);
      if (!stream.device().is_cpu()) stream.queue().synchronize();
      group_->all_reduce(host, largest, ReduceOp::kMax);
      copy(stream, largest, scale);
      if (!stream.device().is_cpu()) stream.queue().synchronize();
    }
  }
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
  group_->all_reduce(Stream(&stream.pool()), counts_);
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
  for (const ExpertMove& move : plan_moves(slots.placement(), change.placement)) {
    carry_out(move, *change.layer, stream);
  }
  slots.set_placement(change.placement);
}

std::vector<Tensor> ExpertBalancer::aside_of(const FusedMoE& layer) const {
  std::vector<Tensor> tensors = layer.slot_tensors(0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = tensors[i];
    tensor =
        Tensor(aside_[i].raw_data(), tensor.dtype(), tensor.shape(), nullptr, aside_[i].device());
  }
  return tensors;
}

void ExpertBalancer::carry_out(const ExpertMove& move,
                               const FusedMoE& layer,
                               const Stream& stream) {
  const int64_t slots_of_rank = layer.slots()->placement().slots_of_rank();
  const auto rank_of = [&](int32_t slot) {
    return slot == ExpertMove::kAside ? move.aside_rank : static_cast<int>(slot / slots_of_rank);
  };
  const auto tensors_of = [&](int32_t slot) {
    return slot == ExpertMove::kAside ? aside_of(layer) : layer.slot_tensors(slot % slots_of_rank);
  };
  const int from = rank_of(move.from), to = rank_of(move.to);
  if (from != rank_ && to != rank_) return;
  if (from != rank_) {
    for (const Tensor& tensor : tensors_of(move.to)) group_->receive(stream, tensor, from);
  } else if (to != rank_) {
    for (const Tensor& tensor : tensors_of(move.from)) group_->send(stream, tensor, to);
  } else {
    const std::vector<Tensor> sources = tensors_of(move.from), targets = tensors_of(move.to);
    for (size_t i = 0; i < sources.size(); ++i) copy(stream, sources[i], targets[i]);
  }
  if (to == rank_ && move.to != ExpertMove::kAside) ++num_moves_;
}

ExpertBalancer::Figures ExpertBalancer::figures() const {
  return {num_tokens_.load(), num_largest_tokens_.load(), num_moves_.load()};
}

}  // namespace atom
