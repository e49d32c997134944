// Counts the tokens of an answer up to the end of its reasoning. Parses the answer a second time,
// token by token: where many tokens come at once, the text alone does not say which ended it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "config/sampling_params.h"
#include "server/parsers/output_parser.h"
#include "tokenizer/detokenizer.h"

namespace atom::server {

class ReasoningCounter {
 public:
  // `parser`: one of its own, as the answer's. `sampling`: of the request.
  ReasoningCounter(std::shared_ptr<const Tokenizer> tokenizer,
                   const SamplingParams& sampling,
                   std::unique_ptr<OutputParser> parser);

  void add(std::span<const int32_t> token_ids);
  // Markers included; 0 of an answer without reasoning.
  int64_t count() const { return has_reasoning_ ? count_ : 0; }

 private:
  IncrementalDetokenizer detokenizer_;
  std::unique_ptr<OutputParser> parser_;  // null: the reasoning is over
  int64_t count_ = 0;
  bool has_reasoning_ = false;
};

}  // namespace atom::server
