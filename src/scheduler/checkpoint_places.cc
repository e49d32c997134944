#include "scheduler/checkpoint_places.h"

#include <algorithm>

#include "base/check.h"

namespace atom {
namespace {

int32_t interval_of(const SchedulerConfig& config) {
  const bool saves = config.num_state_slots > 0 && config.enable_prefix_caching;
  return saves ? config.state_checkpoint_interval : 0;
}

int32_t next_multiple(int32_t interval, int32_t num_computed) {
  return num_computed - num_computed % interval + interval;
}

}  // namespace

CheckpointPlaces::CheckpointPlaces(const SchedulerConfig& config)
    : block_size_(config.block_size),
      interval_(interval_of(config)),
      answer_interval_(static_cast<int32_t>(
          std::min<int64_t>(interval_,
                            num_blocks_for(config.answer_checkpoint_interval, config.block_size) *
                                config.block_size))),
      min_saved_(config.min_checkpoint_tokens) {
  CHECK(interval_ >= 0);
  CHECK(interval_ % block_size_ == 0);
  CHECK(config.answer_checkpoint_interval > 0);
}

CheckpointPlaces::OfPrompt CheckpointPlaces::of_prompt(int32_t num_tokens,
                                                       int32_t num_cached,
                                                       int32_t num_covered) const {
  OfPrompt places;
  if (!exist()) return places;
  if (num_cached - num_covered >= min_saved_) places.end_of_cached = num_cached;
  // The last token is computed in any case.
  const int32_t end = (num_tokens - 1) / block_size_ * block_size_;
  if (end - std::max(num_covered, places.end_of_cached) >= min_saved_) places.end = end;
  return places;
}

int32_t CheckpointPlaces::next_in_prompt(const OfPrompt& prompt, int32_t num_computed) const {
  if (!exist()) return INT32_MAX;
  int32_t next = next_multiple(interval_, num_computed);
  for (const int32_t place : {prompt.end_of_cached, prompt.end}) {
    if (place > num_computed) next = std::min(next, place);
  }
  return next;
}

int32_t CheckpointPlaces::next_in_answer(int32_t num_computed) const {
  if (!exist()) return INT32_MAX;
  return std::min(next_multiple(interval_, num_computed),
                  next_multiple(answer_interval_, num_computed));
}

}  // namespace atom
