// ModelRunner's steps of padding from which the GPU's multiplications are tuned.
#include <algorithm>
#include <chrono>

#include "base/env.h"
#include "base/log.h"
#include "ops/linear/library/gemm_tuner.h"
#include "runner/model_runner.h"

namespace atom {
namespace {

// What measuring may take, on top of the steps themselves.
constexpr double kMaxTuningSeconds = 3;

}  // namespace

// Whole sequences of one repeated token, over blocks that hold nothing yet.
void ModelRunner::prefill_padding(int32_t num_tokens) {
  SchedulerOutput step;
  std::vector<RunnerSequence> sequences;
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.seed = 0;
  const auto max_length = static_cast<int32_t>(config_.max_model_len());
  for (int32_t left = num_tokens;
       left > 0 && static_cast<int32_t>(sequences.size()) < config_.scheduler.max_num_seqs;) {
    const int32_t length = std::min(left, max_length);
    const std::vector<int32_t> token_ids(length, 0);
    std::vector<int32_t> block_ids(num_blocks_for(length, plan_.block_size));
    for (size_t i = 0; i < block_ids.size(); ++i) {
      block_ids[i] = static_cast<int32_t>(i) % plan_.num_blocks;
    }
    sequences.push_back({.token_ids = token_ids,
                         .num_prompt_tokens = length,
                         .block_ids = block_ids,
                         .window_block_ids = block_ids,
                         .sampling = SamplingState(greedy, token_ids, {}, num_sampled_ids_)});
    ScheduledSequence& scheduled = step.scheduled.emplace_back();
    scheduled.num_new_tokens = length;
    left -= length;
  }
  std::vector<RunnerSequence*> pointers;
  for (RunnerSequence& sequence : sequences) pointers.push_back(&sequence);
  const Workspace::Scope scope(workspace_);
  model_->forward(context_of(input_builder_->build(step, pointers)));
}

void ModelRunner::tune_linears(const std::function<void()>& advance) {
  const auto begin = std::chrono::steady_clock::now();
  ops::GemmTuner tuner(stream_, env().cache_folder, kMaxTuningSeconds);
  for (const DecodeShape& shape : DecodeGraphs::shapes(config_)) {
    tuner.tune([&] {
      const Workspace::Scope scope(workspace_);
      decode(input_builder_->build_decodes({}, {}, shape), SamplingKind::kLargest);
    });
    advance();
  }
  tuner.tune([&] { prefill_padding(config_.scheduler.max_num_batched_tokens); });
  advance();
  tuner.save();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const ops::GemmTuning& result = tuner.result();
  log::info(
      "multiplications: {} kinds measured, {} remembered, {} as another card, {} better than the "
      "library's choice, {} left to it for lack of time, in {:.2f} s",
      result.num_measured,
      result.num_remembered,
      result.num_followed,
      result.num_changed,
      result.num_left,
      took.count());
}

}  // namespace atom
