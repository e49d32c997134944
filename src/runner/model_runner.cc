#include "runner/model_runner.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "models/registry.h"
#include "ops/embedding/embedding.h"
#include "runner/kv_cache_allocator.h"
#include "runner/step_dry_run.h"

namespace atom {

ModelRunner::ModelRunner(const ResolvedConfig& config, int64_t num_sampled_ids)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      pool_(std::make_unique<ThreadPool>(config.num_threads)),
      stream_(pool_.get()),
      input_builder_(config.scheduler) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const ResolvedConfig& config,
                                                         int64_t num_sampled_ids,
                                                         const LoadProgress& progress) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, num_sampled_ids));
  ASSIGN_OR_RETURN(BuiltModel built, build_model(config));
  runner->model_ = std::move(built.model);
  ASSIGN_OR_RETURN(runner->plan_, plan_memory(config, *runner->model_, built.kv_cache_specs));
  RETURN_IF_ERROR(load_weights(config, runner->stream_, *runner->model_, progress));
  runner->kv_caches_ =
      allocate_kv_caches(built.kv_cache_specs, runner->plan_.num_blocks, runner->plan_.block_size);
  runner->workspace_ = Workspace(runner->plan_.workspace);
  return runner;
}

void ModelRunner::update_sequences(const SchedulerOutput& step) {
  for (const SequenceId id : step.finished) sequences_.erase(id);
  for (const NewSequence& added : step.new_sequences) {
    RunnerSequence sequence{
        added.prompt_token_ids,
        static_cast<int32_t>(added.prompt_token_ids.size()),
        {},
        SamplingState(
            added.sampling, added.prompt_token_ids, config_.model.eos_token_ids, num_sampled_ids_)};
    CHECK(sequences_.emplace(added.id, std::move(sequence)).second);
  }
  scheduled_.clear();
  for (const ScheduledSequence& scheduled : step.scheduled) {
    const auto found = sequences_.find(scheduled.id);
    CHECK((found != sequences_.end()));
    RunnerSequence& sequence = found->second;
    if (scheduled.reset_block_table) sequence.block_ids.clear();
    sequence.block_ids.insert(
        sequence.block_ids.end(), scheduled.new_block_ids.begin(), scheduled.new_block_ids.end());
    scheduled_.push_back(&sequence);
  }
}

std::vector<ModelRunner::LogitsRow> ModelRunner::select_rows(const SchedulerOutput& step) const {
  std::vector<LogitsRow> sampled;
  std::vector<LogitsRow> scored;
  int32_t row = 0;
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    const ScheduledSequence& scheduled = step.scheduled[s];
    const RunnerSequence& sequence = *scheduled_[s];
    if (sequence.sampling.params().prompt_logprobs) {
      const int32_t end = std::min(scheduled.num_computed_tokens + scheduled.num_new_tokens,
                                   sequence.num_prompt_tokens - 1);
      for (int32_t position = scheduled.num_computed_tokens; position < end; ++position) {
        const int32_t hidden_row = row + position - scheduled.num_computed_tokens;
        scored.push_back({s, hidden_row, sequence.token_ids[position + 1]});
      }
    }
    row += scheduled.num_new_tokens;
    if (scheduled.samples) sampled.push_back({s, row - 1});
  }
  // Prompt rows first: sampling appends to token_ids, scoring reads them.
  scored.insert(scored.end(), sampled.begin(), sampled.end());
  return scored;
}

void ModelRunner::run_rows(std::span<const LogitsRow> rows,
                           const Tensor& hidden,
                           const ForwardContext& context,
                           ModelRunnerOutput* output) {
  const Workspace::Scope scope(workspace_);
  const auto num_rows = static_cast<int64_t>(rows.size());
  const Tensor selected = workspace_.tensor({num_rows, hidden.size(1)}, hidden.dtype());
  const Tensor logits = workspace_.tensor({num_rows, config_.model.vocab_size}, DType::kFloat32);
  row_ids_.clear();
  for (const LogitsRow& row : rows) row_ids_.push_back(row.hidden_row);
  ops::embedding(stream_, Tensor(row_ids_.data(), DType::kInt32, {num_rows}), hidden, selected);
  model_->compute_logits(selected, logits, context);
  if (rows.front().scored_token >= 0) {
    score_rows(rows, logits, output);
  } else {
    sample_rows(rows, logits, output);
  }
}

void ModelRunner::sample_rows(std::span<const LogitsRow> rows,
                              const Tensor& logits,
                              ModelRunnerOutput* output) {
  std::vector<SamplingRow> requests;
  for (const LogitsRow& row : rows) requests.push_back({&scheduled_[row.sequence]->sampling});
  std::vector<SampledToken> sampled(rows.size());
  sampler_.sample(stream_, logits, requests, sampled);
  for (size_t i = 0; i < rows.size(); ++i) {
    RunnerSequence& sequence = *scheduled_[rows[i].sequence];
    SequenceOutput& result = output->sequences[rows[i].sequence];
    if (sampled[i].status.ok()) {
      result.token_ids.push_back(sampled[i].token_id);
      if (sequence.sampling.params().logprobs) {
        result.logprobs.push_back(std::move(sampled[i].logprobs));
      }
    } else {
      result.error = sampled[i].status.message();
      // A step already ordered for this sequence needs some token to go on with.
      sampled[i].token_id = 0;
    }
    sequence.token_ids.push_back(sampled[i].token_id);
    sequence.sampling.append(sampled[i].token_id);
  }
}

void ModelRunner::score_rows(std::span<const LogitsRow> rows,
                             const Tensor& logits,
                             ModelRunnerOutput* output) {
  std::vector<ScoredToken> tokens;
  for (const LogitsRow& row : rows) {
    const SamplingParams& params = scheduled_[row.sequence]->sampling.params();
    tokens.push_back({row.scored_token, *params.prompt_logprobs, config_.model.vocab_size});
  }
  std::vector<Result<TokenLogprobs>> scores(rows.size(), TokenLogprobs());
  sampler_.score(stream_, logits, tokens, scores);
  for (size_t i = 0; i < rows.size(); ++i) {
    SequenceOutput& result = output->sequences[rows[i].sequence];
    if (scores[i].ok()) {
      result.prompt_logprobs.push_back(std::move(scores[i]).value());
    } else {
      result.error = scores[i].status().message();
      result.prompt_logprobs.emplace_back();
    }
  }
}

ModelRunnerOutput ModelRunner::execute(const SchedulerOutput& step) {
  update_sequences(step);
  ModelRunnerOutput output;
  output.step = step.step;
  for (const ScheduledSequence& scheduled : step.scheduled) {
    output.sequences.emplace_back().id = scheduled.id;
  }
  if (step.scheduled.empty()) return output;

  const Workspace::Scope scope(workspace_);
  const StepInputs inputs = input_builder_.build(step, scheduled_);
  const ForwardContext context{
      stream_, workspace_, inputs.token_ids, inputs.positions, inputs.attention, kv_caches_};
  const Tensor hidden = model_->forward(context);

  const std::vector<LogitsRow> rows = select_rows(step);
  const auto max_rows = static_cast<size_t>(max_logits_rows(config_.scheduler));
  for (size_t begin = 0; begin < rows.size();) {
    const bool scored = rows[begin].scored_token >= 0;
    size_t end = begin;
    while (end < rows.size() && end - begin < max_rows && (rows[end].scored_token >= 0) == scored) {
      ++end;
    }
    run_rows(std::span(rows).subspan(begin, end - begin), hidden, context, &output);
    begin = end;
  }
  // A sequence that failed in either kind of rows has no token.
  for (SequenceOutput& result : output.sequences) {
    if (!result.error.empty()) result.token_ids.clear();
  }
  return output;
}

}  // namespace atom
