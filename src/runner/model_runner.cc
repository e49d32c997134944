#include "runner/model_runner.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "ops/embedding/embedding.h"
#include "runner/choose_device.h"
#include "runner/kv_cache_allocator.h"
#include "runner/step_dry_run.h"

namespace atom {

ModelRunner::ModelRunner(const ResolvedConfig& config, int64_t num_sampled_ids)
    : config_(config),
      num_sampled_ids_(num_sampled_ids),
      pool_(std::make_unique<ThreadPool>(config.num_threads)),
      stream_(pool_.get()) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const ResolvedConfig& config,
                                                         int64_t num_sampled_ids,
                                                         const LoadProgress& progress,
                                                         OperatorTrace* trace) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, num_sampled_ids));
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device));
  ASSIGN_OR_RETURN(BuiltModel built, build_model(config, device));
  ASSIGN_OR_RETURN(const MemoryPlan plan, plan_memory(config, built));
  runner->plan_ = plan;
  runner->model_ = std::move(built.model);
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(DeviceRuntime * runtime, device_runtime(device.type));
    RETURN_IF_ERROR(runner->reserve(*runtime));
  }
  runner->stream_.set_trace(trace);
  if (trace != nullptr) trace->attach(runner->queue_.get());
  const Stream& stream = runner->stream_;
  RETURN_IF_ERROR(load_weights(config, stream, *runner->model_, progress));
  runner->kv_caches_ =
      allocate_kv_caches(stream, built.kv_cache_specs, plan.num_blocks, plan.block_size);
  runner->workspace_ = Workspace(stream, plan.workspace);
  runner->input_builder_.emplace(config.scheduler, stream);
  const int64_t max_rows = max_logits_rows(config.scheduler, device);
  runner->row_ids_.emplace(stream, max_rows);
  if (!device.is_cpu()) {
    runner->device_sampler_.emplace(stream, max_rows, config.model.vocab_size, num_sampled_ids);
    if (config.engine.device.enable_graphs) runner->record_graphs();
  }
  return runner;
}

Status ModelRunner::reserve(DeviceRuntime& runtime) {
  queue_ = runtime.create_queue();
  ASSIGN_OR_RETURN(arena_, DeviceArena::reserve(runtime, plan_.total()));
  stream_ = Stream(pool_.get(), queue_.get(), arena_.get());
  return {};
}

ForwardContext ModelRunner::context_of(const StepInputs& inputs) {
  return {stream_, workspace_, inputs.token_ids, inputs.positions, inputs.attention, kv_caches_};
}

DecodeOutputs ModelRunner::decode(const StepInputs& inputs) {
  const ForwardContext context = context_of(inputs);
  const Tensor hidden = model_->forward(context);
  const Tensor logits =
      workspace_.tensor({hidden.size(0), config_.model.vocab_size}, DType::kFloat32);
  model_->compute_logits(hidden, logits, context);
  return {logits, device_sampler_->choose_largest(logits, workspace_)};
}

void ModelRunner::record_graphs() {
  const auto prepare = [&](int64_t batch) { return input_builder_->build_decodes({}, {}, batch); };
  const auto run = [&](const StepInputs& inputs) {
    const Workspace::Scope scope(workspace_);
    return decode(inputs);
  };
  const auto begin = std::chrono::steady_clock::now();
  const size_t count = graphs_.record(stream_, config_.scheduler.max_num_seqs, prepare, run);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log::info("recorded decode steps of {} batch sizes in {:.2f} s", count, took.count());
}

const DecodeGraphs::Graph* ModelRunner::recorded(const SchedulerOutput& step,
                                                 std::span<const LogitsRow> rows) const {
  if (rows.size() != step.scheduled.size()) return nullptr;
  for (size_t s = 0; s < rows.size(); ++s) {
    if (step.scheduled[s].num_new_tokens != 1 || rows[s].scored_token >= 0) return nullptr;
  }
  return graphs_.find(static_cast<int64_t>(rows.size()));
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
  for (int64_t i = 0; i < num_rows; ++i) row_ids_->host()[i] = rows[i].hidden_row;
  row_ids_->send(0, num_rows);
  ops::embedding(stream_, row_ids_->view(0, {num_rows}), hidden, selected);
  model_->compute_logits(selected, logits, context);
  if (rows.front().scored_token >= 0) {
    score_rows(rows, logits, output);
  } else {
    if (device_sampler_) device_sampler_->choose_largest(logits, workspace_);
    sample_rows(rows, logits, output);
  }
}

void ModelRunner::sample_rows(std::span<const LogitsRow> rows,
                              const Tensor& logits,
                              ModelRunnerOutput* output) {
  std::vector<SamplingRow> requests;
  for (const LogitsRow& row : rows) requests.push_back({&scheduled_[row.sequence]->sampling});
  std::vector<SampledToken> sampled(rows.size());
  if (device_sampler_) {
    device_sampler_->sample(logits, requests, sampled);
  } else {
    sampler_.sample(stream_, logits, requests, sampled);
  }
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
  if (device_sampler_) {
    device_sampler_->score(logits, tokens, scores);
  } else {
    sampler_.score(stream_, logits, tokens, scores);
  }
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
  const std::vector<LogitsRow> rows = select_rows(step);
  if (const DecodeGraphs::Graph* graph = recorded(step, rows)) {
    input_builder_->build_decodes(step, scheduled_, graph->batch);
    graph->graph->launch();
    const auto num_rows = static_cast<int64_t>(rows.size());
    sample_rows(rows, graph->outputs.logits.narrow(0, 0, num_rows), &output);
  } else {
    forward(step, rows, &output);
  }
  // A sequence that failed in either kind of rows has no token.
  for (SequenceOutput& result : output.sequences) {
    if (!result.error.empty()) result.token_ids.clear();
  }
  return output;
}

void ModelRunner::forward(const SchedulerOutput& step,
                          std::span<const LogitsRow> rows,
                          ModelRunnerOutput* output) {
  const ForwardContext context = context_of(input_builder_->build(step, scheduled_));
  const Tensor hidden = model_->forward(context);
  const auto max_rows = static_cast<size_t>(max_logits_rows(config_.scheduler, stream_.device()));
  for (size_t begin = 0; begin < rows.size();) {
    const bool scored = rows[begin].scored_token >= 0;
    size_t end = begin;
    while (end < rows.size() && end - begin < max_rows && (rows[end].scored_token >= 0) == scored) {
      ++end;
    }
    run_rows(rows.subspan(begin, end - begin), hidden, context, output);
    begin = end;
  }
  // The host buffers are written again by the next step.
  if (rows.empty() && queue_ != nullptr) queue_->synchronize();
}

}  // namespace atom
