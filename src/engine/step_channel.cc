#include "engine/step_channel.h"

#include <cstring>
#include <vector>

#include "engine/messages.h"

namespace atom {
namespace {

constexpr int kHeadRank = 0;
// Prompts of a step's new sequences, and little else.
constexpr int64_t kMaxStepBytes = int64_t{1} << 30;

}  // namespace

void StepChannel::send(const SchedulerOutput& step) {
  const std::vector<uint8_t> bytes = encode(step);
  const auto size = static_cast<int64_t>(bytes.size());
  CHECK(size <= kMaxStepBytes);
  const Tensor header = Tensor::empty({1}, DType::kInt64);
  *header.data<int64_t>() = size;
  const Tensor body = Tensor::empty({size}, DType::kInt8);
  std::memcpy(body.raw_data(), bytes.data(), bytes.size());
  nodes_.broadcast(stream_, header, kHeadRank);
  nodes_.broadcast(stream_, body, kHeadRank);
}

std::optional<SchedulerOutput> StepChannel::receive() {
  const Tensor header = Tensor::zeros({1}, DType::kInt64);
  nodes_.broadcast(stream_, header, kHeadRank);
  if (!nodes_.status().ok()) return std::nullopt;
  const int64_t size = *header.data<int64_t>();
  if (size < 1 || size > kMaxStepBytes) {
    nodes_.fail(internal_error("the head sent a step of {} bytes", size));
    return std::nullopt;
  }
  const Tensor body = Tensor::empty({size}, DType::kInt8);
  nodes_.broadcast(stream_, body, kHeadRank);
  if (!nodes_.status().ok()) return std::nullopt;
  const auto* bytes = static_cast<const uint8_t*>(body.raw_data());
  Result<SchedulerOutput> step = decode_scheduler_output({bytes, static_cast<size_t>(size)});
  if (step.ok()) return std::move(step).value();
  nodes_.fail(step.status());
  return std::nullopt;
}

}  // namespace atom
