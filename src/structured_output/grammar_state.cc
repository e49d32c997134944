#include "structured_output/grammar_state.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "structured_output/xgrammar_objects.h"

namespace atom {
namespace {

void set_bit(std::span<uint32_t> words, int32_t id) {
  words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

void clear_bit(std::span<uint32_t> words, int32_t id) {
  words[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32));
}

bool ends_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& end) {
  return ids.size() >= end.size() && std::equal(end.rbegin(), end.rend(), ids.rbegin());
}

}  // namespace

struct GrammarState::Matcher {
  std::shared_ptr<const CompiledGrammar> grammar;
  xgrammar::GrammarMatcher matcher;
};

GrammarState::GrammarState(std::shared_ptr<const CompiledGrammar> grammar, ReasoningMarks reasoning)
    : reasoning_(std::move(reasoning)) {
  const xgrammar::CompiledGrammar& compiled = grammar->impl().grammar;
  const xgrammar::TokenizerInfo tokenizer = compiled.GetTokenizerInfo();
  end_token_ids_ = tokenizer.GetStopTokenIds();
  num_words_ = (static_cast<size_t>(tokenizer.GetVocabSize()) + 31) / 32;
  matcher_ =
      std::make_unique<Matcher>(Matcher{std::move(grammar), xgrammar::GrammarMatcher(compiled)});
  const bool may_reason = !reasoning_.end.empty();
  phase_ = may_reason && reasoning_.has_begun           ? Phase::kReasoning
           : may_reason && reasoning_.begin.size() == 1 ? Phase::kDeciding
                                                        : Phase::kGrammar;
}

GrammarState::~GrammarState() = default;
GrammarState::GrammarState(GrammarState&&) noexcept = default;
GrammarState& GrammarState::operator=(GrammarState&&) noexcept = default;

bool GrammarState::is_terminated() const {
  return phase_ == Phase::kGrammar && matcher_->matcher.IsTerminated();
}

void GrammarState::allow_only_ends(std::span<uint32_t> words) const {
  std::ranges::fill(words, 0u);
  for (const int32_t id : end_token_ids_) set_bit(words, id);
}

// Null: every token may come.
const uint32_t* GrammarState::fill_mask(std::span<uint32_t> words) {
  if (phase_ == Phase::kReasoning) {
    std::ranges::fill(words, ~0u);
    for (const int32_t id : end_token_ids_) clear_bit(words, id);
    return words.data();
  }
  if (matcher_->matcher.IsTerminated()) {
    allow_only_ends(words);
    return words.data();
  }
  auto size = static_cast<int64_t>(words.size());
  DLTensor mask{};
  mask.data = words.data();
  mask.device = {kDLCPU, 0};
  mask.ndim = 1;
  mask.dtype = {kDLInt, 32, 1};
  mask.shape = &size;
  if (!matcher_->matcher.FillNextTokenBitmask(&mask)) return nullptr;
  if (phase_ == Phase::kDeciding) set_bit(words, reasoning_.begin[0]);
  return words.data();
}

void GrammarState::advance_reasoning(int32_t token_id) {
  if (tail_.size() == reasoning_.end.size()) tail_.erase(tail_.begin());
  tail_.push_back(token_id);
  if (ends_with(tail_, reasoning_.end)) phase_ = Phase::kGrammar;
}

// Adds to `num_matcher_tokens` what a rollback has to take back.
Status GrammarState::advance(int32_t token_id, int* num_matcher_tokens) {
  if (phase_ == Phase::kReasoning) {
    advance_reasoning(token_id);
    return {};
  }
  if (phase_ == Phase::kDeciding) {
    const bool reasons = token_id == reasoning_.begin[0];
    phase_ = reasons ? Phase::kReasoning : Phase::kGrammar;
    if (reasons) return {};
  }
  const bool is_end = std::ranges::find(end_token_ids_, token_id) != end_token_ids_.end();
  if (matcher_->matcher.IsTerminated() && is_end) return {};
  if (matcher_->matcher.IsTerminated() || !matcher_->matcher.AcceptToken(token_id)) {
    return invalid_argument("token {} does not follow the grammar of the answer", token_id);
  }
  ++*num_matcher_tokens;
  return {};
}

Status GrammarState::fill_masks(std::span<const int32_t> drafts,
                                std::span<uint32_t> words,
                                std::span<const uint32_t*> allowed) {
  CHECK(allowed.size() == drafts.size() + 1);
  CHECK(words.size() >= allowed.size() * num_words_);
  std::ranges::fill(allowed, nullptr);
  const Phase phase = phase_;
  const std::vector<int32_t> tail = tail_;
  int num_matcher_tokens = 0;
  const Status status = guarded([&] {
    for (size_t i = 0; i < allowed.size(); ++i) {
      allowed[i] = fill_mask(words.subspan(i * num_words_, num_words_));
      if (i == drafts.size() || !advance(drafts[i], &num_matcher_tokens).ok()) break;
    }
  });
  const Status restored = guarded([&] {
    if (num_matcher_tokens > 0) matcher_->matcher.Rollback(num_matcher_tokens);
  });
  phase_ = phase;
  tail_ = tail;
  return status.ok() ? restored : status;
}

Status GrammarState::accept(int32_t token_id) {
  int num_matcher_tokens = 0;
  Status status;
  RETURN_IF_ERROR(guarded([&] { status = advance(token_id, &num_matcher_tokens); }));
  return status;
}

}  // namespace atom
