#include "structured_output/grammar_state.h"

#include <algorithm>
#include <limits>
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

// Calls `body`, which uses the matcher, for so much work at most.
template <typename Body>
Status GrammarState::parse(int64_t most, Body&& body) {
  RETURN_IF_ERROR(failure_);
  int64_t& work_left = xgrammar::ParserWorkLeft();
  work_left = most;
  failure_ = guarded(body);
  const int64_t left = std::exchange(work_left, std::numeric_limits<int64_t>::max());
  work_ += most - left;
  if (left < 0) {
    failure_ = resource_exhausted(
        "the form of the answer leaves too many ways to go on; expected one with fewer repetitions "
        "within repetitions and fewer alternatives that begin alike");
  }
  return failure_;
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
  const Status status = parse(kMaxMaskWork, [&] {
    for (size_t i = 0; i < allowed.size(); ++i) {
      allowed[i] = fill_mask(words.subspan(i * num_words_, num_words_));
      if (i == drafts.size() || !advance(drafts[i], &num_matcher_tokens).ok()) break;
    }
  });
  phase_ = phase;
  tail_ = tail;
  RETURN_IF_ERROR(status);
  return parse(kMaxMaskWork, [&] {
    if (num_matcher_tokens > 0) matcher_->matcher.Rollback(num_matcher_tokens);
  });
}

Status GrammarState::accept(int32_t token_id) {
  int num_matcher_tokens = 0;
  Status status;
  const int64_t work = work_;
  RETURN_IF_ERROR(
      parse(token_work_left_, [&] { status = advance(token_id, &num_matcher_tokens); }));
  token_work_left_ -= work_ - work;
  return status;
}

}  // namespace atom
