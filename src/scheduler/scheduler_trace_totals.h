// Test support: what random traces of the scheduler went through.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace atom {

struct TraceTotals {
  int64_t num_steps = 0;
  int64_t num_requests = 0;
  int64_t num_refused = 0;
  int64_t num_aborted = 0;
  int64_t num_stopped = 0;
  int64_t num_length = 0;
  int64_t num_hit_tokens = 0;
  int64_t num_preemptions = 0;
  int64_t num_shared_blocks = 0;
  int64_t num_behind_windows = 0;  // blocks that running sequences had given back, of all steps
  int64_t num_resets = 0;
  int64_t num_saves = 0;     // of checkpoints
  int64_t num_restores = 0;  // likewise
  int64_t num_waits = 0;     // steps after which somebody waited while no slot was free
  int64_t num_verified = 0;  // drafts
  int64_t num_accepted = 0;  // of them

  std::string to_string() const {
    return fmt::format(
        "{} steps: {} requests, {} refused, {} aborted, {} stopped, {} at their length, {} hit "
        "tokens, {} preemptions, {} shared blocks seen, {} behind windows, {} resets, {} "
        "checkpoints saved, {} "
        "restored, {} waits for a slot, {} of {} drafts accepted",
        num_steps,
        num_requests,
        num_refused,
        num_aborted,
        num_stopped,
        num_length,
        num_hit_tokens,
        num_preemptions,
        num_shared_blocks,
        num_behind_windows,
        num_resets,
        num_saves,
        num_restores,
        num_waits,
        num_accepted,
        num_verified);
  }
};

}  // namespace atom
