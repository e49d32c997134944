#include "tests/golden/choice_replay.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "ops/moe_route/moe_route.h"
#include "tests/golden/host_tensor.h"

namespace atom {
namespace {

// Over every score.
constexpr float kForced = 1e9f;

int64_t num_missing(const std::vector<int32_t>& wanted, const std::vector<int32_t>& own) {
  std::vector<int32_t> missing;
  std::ranges::set_difference(wanted, own, std::back_inserter(missing));
  return static_cast<int64_t>(missing.size());
}

}  // namespace

void ChoiceReplay::begin_step(std::vector<Token> tokens) {
  tokens_ = std::move(tokens);
  next_layer_ = 0;
}

ChoiceReplay::ChoicesOfToken* ChoiceReplay::choices_of(const Token& token) {
  if (!token.is_of_prompt()) return nullptr;
  ChoicesOfPrompt& prompt = prompts_[{token.prompt.begin(), token.prompt.end()}];
  prompt.resize(token.prompt.size());
  return &prompt[token.position];
}

const ChoiceReplay::Choice* ChoiceReplay::settle(const Token& token,
                                                 size_t layer,
                                                 const Choice& own) {
  ChoicesOfToken* const choices = choices_of(token);
  if (choices == nullptr) return nullptr;
  if (!is_replaying_) {
    CHECK(choices->size() == layer);
    choices->push_back(own);
    return nullptr;
  }
  CHECK(layer < choices->size());
  const Choice& recorded = (*choices)[layer];
  CHECK(recorded.size() == own.size());
  num_replayed_ += static_cast<int64_t>(own.size());
  num_replaced_ += num_missing(recorded, own);
  return recorded == own ? nullptr : &recorded;
}

// By the operator itself, whose selection bias counts for the choice alone.
void ChoiceReplay::route(const Tensor& logits,
                         ops::MoeRouting routing,
                         const Tensor& ids,
                         const Tensor& weights) {
  const Tensor bias = Tensor::zeros({logits.size(1) - routing.num_gates()}, DType::kFloat32);
  for (int64_t i = 0; i < routing.top_k; ++i) {
    bias.data<float>()[ids.data<int32_t>()[i]] = kForced;
  }
  routing.num_groups = routing.num_top_groups = 1;
  ops::moe_route(Stream(&pool_), logits, bias, routing, ids, weights);
}

void ChoiceReplay::on_experts(const Stream& stream,
                              const Tensor& logits,
                              const ops::MoeRouting& routing,
                              const Tensor& ids,
                              const Tensor& weights) {
  const size_t layer = next_layer_++;
  const Tensor host_ids = host_copy(stream, ids), host_weights = host_copy(stream, weights);
  const Tensor host_logits = host_copy(stream, logits);
  CHECK(ids.size(0) == static_cast<int64_t>(tokens_.size()));
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const auto row = static_cast<int64_t>(t);
    const Tensor of_token = host_ids.narrow(0, row, 1);
    int32_t* const chosen = of_token.data<int32_t>();
    Choice own(chosen, chosen + routing.top_k);
    std::ranges::sort(own);
    const Choice* const other = settle(tokens_[t], layer, own);
    if (other == nullptr) continue;
    std::ranges::copy(*other, chosen);
    route(host_logits.narrow(0, row, 1), routing, of_token, host_weights.narrow(0, row, 1));
  }
  copy_back(stream, host_ids, ids);
  copy_back(stream, host_weights, weights);
}

void ChoiceReplay::on_positions(const Stream& stream, const Tensor& indices) {
  const size_t layer = next_layer_++;
  const Tensor host_indices = host_copy(stream, indices);
  const int64_t top_k = indices.size(1);
  CHECK(indices.size(0) == static_cast<int64_t>(tokens_.size()));
  for (size_t t = 0; t < tokens_.size(); ++t) {
    int32_t* const begin = host_indices.data<int32_t>() + static_cast<int64_t>(t) * top_k;
    int32_t* const end = std::find(begin, begin + top_k, -1);
    const Choice* const other = settle(tokens_[t], layer, Choice(begin, end));
    if (other != nullptr) std::ranges::copy(*other, begin);
  }
  copy_back(stream, host_indices, indices);
}

double ChoiceReplay::share_of_replaced() const {
  if (num_replayed_ == 0) return 0;
  return static_cast<double>(num_replaced_) / static_cast<double>(num_replayed_);
}

}  // namespace atom
