#include "server/openai/reasoning_counter.h"

#include <utility>

namespace atom::server {

ReasoningCounter::ReasoningCounter(std::shared_ptr<const Tokenizer> tokenizer,
                                   const SamplingParams& sampling,
                                   std::unique_ptr<OutputParser> parser)
    : detokenizer_(
          std::move(tokenizer), sampling.skip_special_tokens, {}, sampling.kept_special_token_ids),
      parser_(std::move(parser)) {}

void ReasoningCounter::add(std::span<const int32_t> token_ids) {
  for (const int32_t id : token_ids) {
    if (parser_ == nullptr) return;
    const OutputDelta delta = parser_->feed(detokenizer_.append(id));
    if (!delta.reasoning.empty()) has_reasoning_ = true;
    if (!delta.content.empty() || !delta.tool_calls.empty()) {
      parser_.reset();
    } else {
      ++count_;
    }
  }
}

}  // namespace atom::server
