#include "tests/golden/drafted_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/registry.h"
#include "runner/choose_device.h"
#include "runner/draft_rows.h"
#include "runner/layer_storage.h"
#include "spec_decode/eagle_proposer.h"
#include "tensor/device_arena.h"
#include "tests/golden/host_tensor.h"
#include "tests/golden/test_device.h"

namespace atom {
namespace {

constexpr int32_t kBlockSize = 16;
// Of each row; behind the last one stands any token.
std::vector<int32_t> tokens_behind(const std::vector<int32_t>& token_ids) {
  std::vector<int32_t> next(token_ids.begin() + 1, token_ids.end());
  next.push_back(0);
  return next;
}

}  // namespace

DraftedModel::DraftedModel(const std::string& folder, const std::string& draft_model) {
  EngineConfig engine;
  engine.model.model = folder;
  engine.model.dtype = DType::kFloat32;
  engine.model.max_model_len = kMaxTokens;
  engine.cache.block_size = kBlockSize;
  engine.speculative.method =
      draft_model.empty() ? SpeculativeMethod::kMtp : SpeculativeMethod::kEagle3;
  engine.speculative.draft_model = draft_model;
  engine.speculative.num_tokens = kNumDrafts;
  config_ = resolve(engine, load_model_config(folder).value()).value();
  const Device device = choose_device(golden_device()).value();
  if (!device.is_cpu()) {
    queue_ = device_runtime(device).value()->create_queue();
    stream_ = Stream(&pool_, queue_.get());
  }
  built_ = build_model(config_, device).value();
  const Status loaded = load_weights(config_, stream_, *built_.model, built_.draft.get(), nullptr);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  // Those of each group of layers.
  constexpr int32_t kNumBlocks = kMaxTokens / kBlockSize;
  storage_ = make_layer_storage(stream_,
                                built_.storage,
                                {.num_blocks = kNumBlocks * config_.scheduler.num_kv_groups,
                                 .block_size = kBlockSize,
                                 .num_slots = config_.scheduler.num_slots_per_sequence()});
  builder_.emplace(config_.scheduler, stream_);
  block_ids_.resize(kNumBlocks);
  std::iota(block_ids_.begin(), block_ids_.end(), 0);
  if (config_.scheduler.num_kv_groups == 1) return;
  window_block_ids_.resize(kNumBlocks);
  std::iota(window_block_ids_.begin(), window_block_ids_.end(), kNumBlocks);
}

void DraftedModel::forward(const std::vector<int32_t>& token_ids,
                           int32_t begin,
                           int32_t end,
                           const Use& use) {
  SamplingParams params;
  params.seed = 0;
  RunnerSequence sequence{.token_ids = token_ids,
                          .num_prompt_tokens = end,
                          .block_ids = block_ids_,
                          .window_block_ids = window_block_ids_,
                          .sampling = SamplingState(params, {}, {}, config_.model.vocab_size)};
  for (int32_t i = 0; i < config_.scheduler.num_slots_per_sequence(); ++i) {
    sequence.state_slots.push_back(i);
  }
  SchedulerOutput step;
  ScheduledSequence& scheduled = step.scheduled.emplace_back();
  scheduled.num_computed_tokens = begin;
  scheduled.num_new_tokens = end - begin;
  RunnerSequence* sequences[] = {&sequence};
  const StepInputs inputs = builder_->build(step, sequences);
  Workspace workspace(stream_, int64_t{256} << 20);
  const Tensor aux = aux_hidden_of(config_, built_.num_aux_layers, end - begin, workspace);
  const ForwardContext context{.stream = stream_,
                               .workspace = workspace,
                               .token_ids = inputs.token_ids,
                               .positions = inputs.positions,
                               .batch = inputs.batch,
                               .storage = storage_,
                               .window_batch = inputs.window_batch,
                               .state_slots = inputs.state_slots,
                               .token_state_slots = inputs.token_state_slots,
                               .aux_hidden = aux};
  const Tensor hidden = built_.model->forward(context);
  use(aux.defined() ? aux : hidden, context);
  if (queue_ != nullptr) queue_->synchronize();
}

Tensor DraftedModel::int32_tensor(const std::vector<int32_t>& values) const {
  const Tensor host = Tensor::empty({std::ssize(values)}, DType::kInt32);
  std::ranges::copy(values, host.data<int32_t>());
  return resident_copy(stream_, host);
}

Tensor DraftedModel::draft_rows(const Tensor& states,
                                const std::vector<int32_t>& next_ids,
                                int draft,
                                const Tensor& logits,
                                const ForwardContext& context) const {
  std::vector<int32_t> rows(next_ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  const ForwardContext of_draft{.stream = stream_,
                                .workspace = context.workspace,
                                .token_ids = int32_tensor(next_ids),
                                .positions = context.positions,
                                .batch = context.batch,
                                .storage = storage_};
  const Tensor state = built_.draft->forward(states, int32_tensor(rows), draft, of_draft);
  const Tensor computed =
      context.workspace.tensor({state.size(0), built_.draft->num_ids()}, DType::kFloat32);
  built_.draft->compute_logits(state, computed, of_draft);
  copy_convert(host_copy(stream_, computed), logits);
  return state;
}

Tensor DraftedModel::draft_logits(const std::vector<int32_t>& token_ids) {
  const auto count = static_cast<int32_t>(token_ids.size());
  const Tensor logits = Tensor::empty({count, built_.draft->num_ids()}, DType::kFloat32);
  forward(token_ids, 0, count, [&](const Tensor& states, const ForwardContext& context) {
    draft_rows(states, tokens_behind(token_ids), 0, logits, context);
  });
  return logits;
}

std::vector<std::vector<int32_t>> DraftedModel::drafts_of_rows(
    const std::vector<int32_t>& token_ids) {
  const auto count = static_cast<int32_t>(token_ids.size());
  const Tensor logits = Tensor::empty({count, built_.draft->num_ids()}, DType::kFloat32);
  std::vector<std::vector<int32_t>> drafts;
  forward(token_ids, 0, count, [&](const Tensor& states, const ForwardContext& context) {
    Tensor state = states;
    std::vector<int32_t> next = tokens_behind(token_ids);
    for (size_t depth = 0; depth < kNumDrafts; ++depth) {
      state = draft_rows(state, next, static_cast<int>(depth), logits, context);
      for (int32_t row = 0; row < count; ++row) {
        const float* values = logits.data<float>() + row * logits.size(1);
        const float* best = std::max_element(values, values + logits.size(1));
        next[row] = static_cast<int32_t>(best - values);
      }
      drafts.push_back(next);
    }
  });
  return drafts;
}

std::vector<int32_t> DraftedModel::drafts_behind(const std::vector<int32_t>& token_ids,
                                                 int32_t begin) {
  std::vector<int32_t> drafts;
  const auto end = static_cast<int32_t>(token_ids.size()) - 1;
  forward(token_ids, begin, end, [&](const Tensor& states, const ForwardContext& context) {
    EagleProposer proposer(*built_.draft, config_.scheduler, {}, config_.model.vocab_size, stream_);
    DraftRequest request{.token_ids = token_ids, .block_ids = block_ids_};
    request.first_position = begin;
    request.num_rows = end - begin;
    request.num_drafts = kNumDrafts;
    drafts = proposer.propose(std::span(&request, 1), states, context)[0];
  });
  return drafts;
}

}  // namespace atom
