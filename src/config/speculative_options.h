// Speculative decoding as flags give it.
#pragma once

#include <cstdint>
#include <string>

namespace atom {

// Who guesses the tokens that the next step verifies.
enum class SpeculativeMethod {
  kOff,
  kNgram,   // prompt and answer themselves, where they repeat
  kMtp,     // the checkpoint's layers for multi-token prediction
  kEagle3,  // a draft model of its own, on hidden states of the target
};

// How a draft model multiplies by an output head.
enum class DraftHeadDType {
  kAuto,    // kFloat8 where that saves time: on Hopper GPUs with 16-bit weights
  kModel,   // by the head itself
  kFloat8,  // by a copy in FP8, a scale for each row, that is made when the head is loaded
};

// It changes the speed of answers, not their text.
struct SpeculativeOptions {
  SpeculativeMethod method = SpeculativeMethod::kOff;
  int32_t num_tokens = 1;   // drafts per sequence and step
  std::string draft_model;  // folder of the checkpoint of kEagle3
  std::string json;  // an object with all of it, as vLLM has it; empty: the other fields count
  DraftHeadDType draft_head_dtype = DraftHeadDType::kAuto;  // of kMtp and kEagle3
  // With more sequences running nobody drafts; 0: by the device.
  int32_t disable_by_batch_size = 0;
  // Tokens that must repeat for kNgram to draft.
  int32_t prompt_lookup_min = 2;
  int32_t prompt_lookup_max = 4;
  double forced_acceptance = -1;  // drafts accepted per step, whatever is sampled; -1: as sampled
  double forced_acceptance_rate = -1;  // the same as a share of num_tokens
};

}  // namespace atom
