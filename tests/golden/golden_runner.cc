#include "tests/golden/golden_runner.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "models/registry.h"
#include "runner/choose_device.h"
#include "runner/context_rows.h"
#include "runner/layer_storage.h"
#include "runner/model_source.h"
#include "tests/golden/host_tensor.h"
#include "tests/golden/test_device.h"

namespace atom {
namespace {

constexpr int64_t kWorkspaceSize = int64_t{256} << 20;

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<StepObserver::Token> tokens_of(const SchedulerOutput& step,
                                           const std::vector<RunnerSequence*>& sequences) {
  std::vector<StepObserver::Token> tokens;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const RunnerSequence& sequence = *sequences[s];
    const std::span<const int32_t> prompt =
        std::span(sequence.token_ids).first(static_cast<size_t>(sequence.num_prompt_tokens));
    const ScheduledSequence& scheduled = step.scheduled[s];
    for (int32_t i = 0; i < scheduled.num_new_tokens; ++i) {
      tokens.push_back({scheduled.id, prompt, scheduled.num_computed_tokens + i});
    }
  }
  return tokens;
}

}  // namespace

GoldenRunner::GoldenRunner(ResolvedConfig config) : config_(std::move(config)) {}

Result<std::unique_ptr<GoldenRunner>> GoldenRunner::create(const std::string& folder,
                                                           EngineConfig engine) {
  engine.model.model = folder;
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(folder));
  ASSIGN_OR_RETURN(ResolvedConfig config, resolve(engine, model));
  std::unique_ptr<GoldenRunner> runner(new GoldenRunner(std::move(config)));
  runner->config_.engine.device.device = golden_device();
  const EngineConfig& resolved = runner->config_.engine;
  ASSIGN_OR_RETURN(const Device first, choose_device(resolved.device));
  RETURN_IF_ERROR(check_cards(runner->config_, first));
  ASSIGN_OR_RETURN(runner->local_ranks_,
                   LocalRanks::create(resolved.parallel,
                                      first,
                                      std::chrono::seconds(60),
                                      runner->config_.copies_share_experts));
  for (int rank = 0; rank < runner->local_ranks_->size(); ++rank) {
    RETURN_IF_ERROR(runner->build_rank(rank));
  }
  if (runner->config_.engine.parallel.eplb.enabled) runner->balance_experts();
  return runner;
}

Status GoldenRunner::build_rank(int rank) {
  const int world = local_ranks_->size();
  Rank& built_rank = *ranks_.emplace_back(std::make_unique<Rank>(world > 1 ? 1 : 2));
  ASSIGN_OR_RETURN(const Device device,
                   choose_device(golden_device(), local_ranks_->context(rank).card));
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(built_rank.runtime, device_runtime(device));
    built_rank.queue = built_rank.runtime->create_queue();
    built_rank.stream = Stream(&built_rank.pool, built_rank.queue.get());
  }
  ASSIGN_OR_RETURN(BuiltModel built, build_model(config_, device, local_ranks_->context(rank)));
  built_rank.model = std::move(built.model);
  built_rank.storage_spec = std::move(built.storage);
  built_rank.moving_experts = std::move(built.moving_experts);
  return load_weights(config_, built_rank.stream, *built_rank.model, nullptr, nullptr);
}

void GoldenRunner::balance_experts() {
  std::vector<std::thread> threads;
  for (size_t index = 0; index < ranks_.size(); ++index) {
    threads.emplace_back([this, index] {
      Rank& rank = *ranks_[index];
      rank.expert_balancer =
          std::make_unique<ExpertBalancer>(config_.engine.parallel.eplb,
                                           local_ranks_->context(static_cast<int>(index)),
                                           rank.moving_experts,
                                           rank.stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

uint64_t GoldenRunner::num_expert_moves() const {
  uint64_t count = 0;
  for (const auto& rank : ranks_) {
    if (rank->expert_balancer != nullptr) count += rank->expert_balancer->figures().num_moves;
  }
  return count;
}

SchedulerConfig GoldenRunner::scheduler_config(const Schedule& schedule) const {
  SchedulerConfig config = config_.scheduler;
  config.max_num_batched_tokens = schedule.max_num_batched_tokens;
  config.max_num_seqs = schedule.max_num_seqs;
  config.num_blocks = schedule.num_blocks;
  config.block_size = schedule.block_size;
  config.num_state_slots = has_states() ? schedule.num_state_slots : 0;
  config.state_checkpoint_interval = schedule.block_size;
  config.enable_prefix_caching = schedule.enable_prefix_caching;
  return config;
}

int32_t GoldenRunner::fewest_blocks(const Schedule& schedule, int64_t num_tokens) const {
  return static_cast<int32_t>(scheduler_config(schedule).max_blocks_of_sequence(num_tokens));
}

std::vector<GoldenResult> GoldenRunner::run(const std::vector<Request>& requests,
                                            const Schedule& schedule,
                                            int32_t max_tokens) {
  const SchedulerConfig config = scheduler_config(schedule);
  copies_.clear();
  for (size_t copy = 0; copy < num_copies(); ++copy) {
    copies_.push_back(std::make_unique<Copy>(config));
  }
  block_size_ = schedule.block_size;
  const ParallelConfig& parallel = config_.engine.parallel;
  for (const auto& rank : ranks_) {
    rank->input_builder.emplace(limits_of_parts(config, parallel.prefill_context_parallel_size),
                                rank->stream);
    rank->context_arrays =
        ContextRows::make_arrays(config, parallel.prefill_context_parallel_size, rank->stream);
    rank->storage =
        make_layer_storage(rank->stream,
                           rank->storage_spec,
                           {schedule.num_blocks, schedule.block_size, config.num_state_slots});
  }

  std::vector<GoldenResult> results(requests.size());
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = max_tokens;
  sampling.seed = 0;
  size_t num_added = 0;
  for (int wave = 0; num_added < requests.size(); ++wave) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].wave != wave) continue;
      const size_t copy = requests[i].copy < 0 ? i % copies_.size() : size_t(requests[i].copy);
      CHECK(copies_[copy]->scheduler.add(i, requests[i].prompt, sampling).ok());
      ++num_added;
    }
    const auto has_work = [](const auto& copy) { return copy->scheduler.has_work(); };
    while (std::ranges::any_of(copies_, has_work)) step_together(results);
  }
  stats_ = copies_.front()->scheduler.stats();
  return results;
}

size_t GoldenRunner::copy_of(size_t rank) const {
  return rank * num_copies() / ranks_.size();
}

void GoldenRunner::step_together(std::vector<GoldenResult>& results) {
  for (const auto& copy : copies_) prepare(*copy);
  const std::vector<Tensor> logits = compute_logits();
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = *copies_[i];
    if (copy.step.empty()) continue;
    copy.scheduler.postprocess(copy.step, take(copy, logits[i], results));
  }
}

Tensor GoldenRunner::compute_logits(size_t index, const Copy& copy) const {
  const bool is_dummy = copy.step.scheduled.empty();
  if (is_dummy && num_copies() == 1) return {};
  Rank& rank = *ranks_[index];
  if (rank.runtime != nullptr) rank.runtime->make_current();
  const ParallelContext& parallel = local_ranks_->context(static_cast<int>(index));
  HostMirror* const arrays = rank.context_arrays ? &*rank.context_arrays : nullptr;
  const ContextRows own(copy.step, copy.scheduled, block_size_, parallel, arrays);
  const StepInputs inputs = is_dummy ? rank.input_builder->build_dummy()
                                     : rank.input_builder->build(own.step(), own.sequences());
  const Stream& stream = rank.stream;
  Workspace workspace(stream, kWorkspaceSize);
  const Shape shape = {is_dummy ? 1 : std::max<int64_t>(1, copy.step.num_tokens),
                       config_.model.vocab_size};
  const Tensor logits = Tensor::empty(shape, DType::kFloat32, stream.device());
  // Memory is taken while no card waits for another.
  parallel.meet(&rank.pool);
  const std::vector<int32_t> tokens_of_ranks =
      parallel.exchange_token_counts(stream, inputs.token_ids.size(0));
  const ForwardContext context{.stream = stream,
                               .workspace = workspace,
                               .token_ids = inputs.token_ids,
                               .positions = inputs.positions,
                               .batch = inputs.batch,
                               .storage = rank.storage,
                               .window_batch = inputs.window_batch,
                               .state_slots = inputs.state_slots,
                               .observer = observer_,
                               .tokens_of_ranks = tokens_of_ranks,
                               .is_dummy = is_dummy,
                               .split = own.split()};
  copy_states(stream, rank.storage, copy.step.state_restores);
  Tensor hidden = rank.model->forward(context);
  if (rank.expert_balancer != nullptr) rank.expert_balancer->end_step(stream);
  copy_states(stream, rank.storage, copy.step.state_saves);
  if (!parallel.samples()) return {};
  hidden = own.whole(hidden, 1, context);
  CHECK(hidden.size(0) == shape[0]);
  rank.model->compute_logits(hidden, logits, context);
  return host_copy(stream, logits);
}

std::vector<Tensor> GoldenRunner::compute_logits() {
  // One thread is observed.
  CHECK((observer_ == nullptr || ranks_.size() == 1));
  std::vector<Tensor> logits(ranks_.size());
  const auto compute = [&](size_t rank) {
    logits[rank] = compute_logits(rank, *copies_[copy_of(rank)]);
  };
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < ranks_.size(); ++rank) threads.emplace_back(compute, rank);
  compute(0);
  for (std::thread& thread : threads) thread.join();
  CHECK(local_ranks_->status().ok());
  std::vector<Tensor> of_copies(copies_.size());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    // Only those of the last stage have any.
    if (!logits[rank].defined()) continue;
    Tensor& first = of_copies[copy_of(rank)];
    if (!first.defined()) first = logits[rank];
    // On cards ranks that share prompts compute decodes with other last bits, and the first counts.
    const int32_t place = local_ranks_->context(static_cast<int>(rank)).context_parallel_rank;
    if (place > 0 && ranks_[rank]->runtime != nullptr) continue;
    CHECK(std::memcmp(logits[rank].raw_data(), first.raw_data(), first.num_bytes()) == 0);
  }
  return of_copies;
}

void GoldenRunner::prepare(Copy& copy) {
  copy.step = copy.scheduler.schedule();
  copy.scheduled.clear();
  const SchedulerOutput& step = copy.step;
  for (const SequenceId id : step.finished) copy.sequences.erase(id);
  for (const NewSequence& added : step.new_sequences) {
    const auto length = static_cast<int32_t>(added.prompt_token_ids.size());
    SamplingState state(added.sampling, added.prompt_token_ids, {}, config_.model.vocab_size);
    copy.sequences.emplace(
        added.id,
        RunnerSequence{
            .token_ids = added.prompt_token_ids, .num_prompt_tokens = length, .sampling = state});
  }
  for (const ScheduledSequence& scheduled : step.scheduled) {
    RunnerSequence& sequence = copy.sequences.at(scheduled.id);
    if (scheduled.reset_block_table) {
      sequence.drop_blocks();
      sequence.state_slots = scheduled.state_slots;
    }
    sequence.add_blocks(scheduled.new_block_ids, config_.scheduler.num_kv_groups);
    copy.scheduled.push_back(&sequence);
  }
  if (observer_ != nullptr && !copy.scheduled.empty()) {
    observer_->begin_step(tokens_of(step, copy.scheduled));
  }
}

ModelRunnerOutput GoldenRunner::take(Copy& copy,
                                     const Tensor& logits,
                                     std::vector<GoldenResult>& results) {
  ModelRunnerOutput output{copy.step.step, {}};
  if (copy.step.scheduled.empty()) return output;
  const int64_t vocab_size = config_.model.vocab_size;
  const float* row = logits.data<float>();
  for (size_t s = 0; s < copy.scheduled.size(); ++s) {
    const ScheduledSequence& scheduled = copy.step.scheduled[s];
    GoldenResult& result = results[scheduled.id];
    SequenceOutput& answer = output.sequences.emplace_back();
    answer.id = scheduled.id;
    for (int32_t i = 0; i < scheduled.num_new_tokens; ++i, row += vocab_size) {
      result.logits[scheduled.num_computed_tokens + i].assign(row, row + vocab_size);
    }
    if (!scheduled.samples()) continue;
    const int32_t token = argmax(std::span(row - vocab_size, vocab_size));
    answer.token_ids.push_back(token);
    result.output.push_back(token);
    copy.scheduled[s]->token_ids.push_back(token);
  }
  return output;
}

}  // namespace atom
