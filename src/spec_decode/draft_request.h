// What a draft model is asked for behind a step of its target.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace atom {

// A sequence's part of the target's step, without rejected rows.
struct DraftRequest {
  std::span<const int32_t> token_ids;  // all that are known, those of this step included
  std::span<const int32_t> block_ids;
  int32_t first_position = 0;
  int32_t num_rows = 0;     // >= 1
  int32_t first_row = 0;    // of the target's hidden states
  int32_t num_settled = 0;  // as ops::PagedBatch has it
  int32_t num_drafts = 0;   // at most; fewer where its blocks end

  // Where a token of its keeps its keys and values.
  int32_t slot_of(int32_t position, int32_t block_size) const {
    return block_ids[position / block_size] * block_size + position % block_size;
  }

  // Drafts that a model of `num_layers` makes: the first ones come from the step's rows, each
  // further one takes a place behind them.
  int32_t num_wanted(int32_t num_layers, int32_t block_size) const {
    const int32_t num_places = static_cast<int32_t>(block_ids.size()) * block_size;
    return std::min(num_drafts, num_layers + num_places - first_position - num_rows);
  }
};

}  // namespace atom
