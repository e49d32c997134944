// What a ModelRunner keeps of a sequence between steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/sampling_state.h"
#include "structured_output/grammar_state.h"

namespace atom {

struct RunnerSequence {
  // Prompt, then everything sampled. ~r, in the last place only: what row r of the step before
  // chose, which the device knows and the host does not yet (ops/pending_tokens).
  std::vector<int32_t> token_ids;
  int32_t num_prompt_tokens = 0;
  std::vector<int32_t> block_ids = {};         // of the first group of layers; -1: see
  std::vector<int32_t> window_block_ids = {};  // ScheduledSequence; of the second, if there is one
  std::vector<int32_t> state_slots = {};       // none in a model without states
  size_t state_index = 0;                      // which of them holds the state
  SamplingState sampling;                      // of the tokens whose values are known
  std::optional<GrammarState> grammar = {};    // of the tokens whose values are known
  std::vector<int32_t> drafts = {};            // of what follows token_ids

  // Takes ScheduledSequence::new_block_ids.
  void add_blocks(std::span<const int32_t> new_block_ids, int32_t num_groups) {
    for (size_t i = 0; i < new_block_ids.size(); ++i) {
      const bool is_first = i % static_cast<size_t>(num_groups) == 0;
      (is_first ? block_ids : window_block_ids).push_back(new_block_ids[i]);
    }
  }
  void drop_blocks() {
    block_ids.clear();
    window_block_ids.clear();
  }
  // The position of the next token among the generated ones.
  uint32_t num_generated() const {
    return static_cast<uint32_t>(token_ids.size()) - static_cast<uint32_t>(num_prompt_tokens);
  }
  // One of the tokens, then of the drafts.
  int32_t token_at(int32_t position) const {
    const auto num_drafted = position - static_cast<int32_t>(token_ids.size());
    return num_drafted < 0 ? token_ids[position] : drafts[num_drafted];
  }
  int32_t state_slot() const { return state_slots.empty() ? -1 : state_slots[state_index]; }
  // The row of the step before that chose the last token; -1: its value is known.
  int32_t pending_row() const { return token_ids.back() < 0 ? ~token_ids.back() : -1; }
};

inline bool has_grammar(std::span<RunnerSequence* const> sequences) {
  return std::ranges::any_of(
      sequences, [](const RunnerSequence* sequence) { return sequence->grammar.has_value(); });
}

}  // namespace atom
