#include "layers/moe/expert_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tensor/device_arena.h"
#include "tensor/fill.h"

namespace atom {
namespace {

// Changes that a step may bring, of those that are enqueued.
constexpr int kChangesOfStep = 3;

int64_t rounded_up(int64_t bytes) {
  return (bytes + DeviceArena::kAlignment - 1) / DeviceArena::kAlignment * DeviceArena::kAlignment;
}

}  // namespace

ExpertSlots::ExpertSlots(const ParallelContext& parallel, int64_t num_experts)
    : placement_(
          first_placement(num_experts, parallel.num_redundant_experts, parallel.expert_size())) {}

int64_t ExpertSlots::table_size() const {
  return ops::ExpertPlaces::size(placement_.num_experts, placement_.num_slots());
}

int64_t ExpertSlots::resident_bytes() const {
  return rounded_up(table_size() * int64_t{sizeof(int32_t)}) +
         rounded_up(placement_.num_experts * int64_t{sizeof(int64_t)});
}

void ExpertSlots::allocate(const Stream& stream) {
  stream_ = &stream;
  table_.emplace(stream, table_size(), kChangesOfStep * (kMaxDeviceSteps + 1));
  counts_ = resident_tensor(stream, {placement_.num_experts}, DType::kInt64);
  fill_zero(stream, counts_);
  send();
}

void ExpertSlots::send() {
  const std::vector<std::vector<int32_t>> slots_of = placement_.slots_of_experts();
  table_->rotate();
  int32_t* begins = table_->host();
  *begins++ = is_counting_ ? 1 : 0;
  int32_t* slots = begins + slots_of.size() + 1;
  int32_t begin = 0;
  for (const std::vector<int32_t>& of_expert : slots_of) {
    *begins++ = begin;
    slots = std::ranges::copy(of_expert, slots).out;
    begin += static_cast<int32_t>(of_expert.size());
  }
  *begins = begin;
  table_->send(0, table_->size());
}

void ExpertSlots::set_placement(ExpertPlacement placement) {
  CHECK(placement.num_experts == placement_.num_experts);
  CHECK(placement.num_ranks == placement_.num_ranks);
  CHECK(placement.num_slots() == placement_.num_slots());
  placement_ = std::move(placement);
  send();
}

void ExpertSlots::choose(const Tensor& ids, const ForwardContext& context) {
  if (context.stream.is_dry_run()) return;
  CHECK(ids.size(0) == context.num_tokens());
  const ops::ExpertPlaces places = {table_->view(0, {table_->size()}), placement_.num_experts};
  ops::choose_expert_slots(context.stream,
                           context.token_ids,
                           context.positions,
                           context.batch.slot_mapping,
                           places,
                           context.is_dummy ? Tensor() : counts_,
                           ids);
}

void ExpertSlots::start_counting() {
  is_counting_ = true;
  send();
}

std::vector<int64_t> ExpertSlots::take_counts() {
  is_counting_ = false;
  std::vector<int64_t> counts(static_cast<size_t>(placement_.num_experts));
  if (stream_->device().is_cpu()) {
    std::copy_n(counts_.data<int64_t>(), counts.size(), counts.begin());
  } else {
    stream_->queue().copy(counts.data(), counts_.raw_data(), counts_.num_bytes());
    stream_->queue().synchronize();
  }
  fill_zero(*stream_, counts_);
  send();
  return counts;
}

}  // namespace atom
