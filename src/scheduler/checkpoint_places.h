// Where checkpoints of a sequence's states are worth saving. All places are ends of whole blocks,
// in tokens of the sequence:
//  - multiples of state_checkpoint_interval;
//  - of a prompt the end of its last block, so that who asks again, or goes on with the
//    conversation, finds it;
//  - where the cached blocks of a prompt end that has no checkpoint there: a second prompt that
//    begins alike shows that a third may come;
//  - in an answer, whose end nobody knows ahead, a place every few blocks. Each is worth its slot
//    only until the next.
// To end a step at a place in a prompt costs a step, so these need some tokens to save.
#pragma once

#include <cstdint>

#include "config/scheduler_config.h"

namespace atom {

class CheckpointPlaces {
 public:
  explicit CheckpointPlaces(const SchedulerConfig& config);

  // Prefix caching saves checkpoints at all.
  bool exist() const { return interval_ > 0; }

  // The places within one prompt, 0 where there are none.
  struct OfPrompt {
    int32_t end_of_cached = 0;
    int32_t end = 0;
  };
  // Places in a prompt of `num_tokens`; blocks cover `num_cached` and the state `num_covered`.
  OfPrompt of_prompt(int32_t num_tokens, int32_t num_cached, int32_t num_covered) const;

  // The first place behind `num_computed` tokens. INT32_MAX: there is none.
  int32_t next_in_prompt(const OfPrompt& prompt, int32_t num_computed) const;
  int32_t next_in_answer(int32_t num_computed) const;

  // A checkpoint of an answer there goes when the next is saved.
  bool is_passing(int32_t num_tokens) const { return num_tokens % interval_ != 0; }

 private:
  const int32_t block_size_;
  const int32_t interval_;         // 0: there are no places
  const int32_t answer_interval_;  // likewise
  const int32_t min_saved_;
};

}  // namespace atom
