// ModelRunner from a configuration to recorded steps.
#include <algorithm>

#include "base/human.h"
#include "base/log.h"
#include "config/speculative_config.h"
#include "runner/choose_device.h"
#include "runner/context_rows.h"
#include "runner/draft_rows.h"
#include "runner/layer_storage.h"
#include "runner/model_runner.h"
#include "runner/step_dry_run.h"

namespace atom {

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(
    const ResolvedConfig& config,
    int64_t num_sampled_ids,
    const std::function<void(const StartProgress&)>& progress,
    SpanRecorder* recorder,
    const ParallelContext& parallel) {
  const ParallelConfig& asked = config.engine.parallel;
  if (parallel.tensor_parallel_size != asked.tensor_parallel_size ||
      parallel.pipeline_parallel_size != asked.pipeline_parallel_size ||
      parallel.context_parallel_size != asked.prefill_context_parallel_size) {
    return unimplemented(
        "--tensor-parallel-size {}, --pipeline-parallel-size {} and "
        "--prefill-context-parallel-size {}: this command computes with one rank",
        asked.tensor_parallel_size,
        asked.pipeline_parallel_size,
        asked.prefill_context_parallel_size);
  }
  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, num_sampled_ids, recorder, parallel));
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device, parallel.card));
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(runner->runtime_, device_runtime(device));
    runner->take_thread();
  }
  const SpeculativeMethod method = config.speculative.method;
  ASSIGN_OR_RETURN(BuiltModel built, build_model(config, device, parallel));
  ASSIGN_OR_RETURN(MemoryPlan plan, plan_memory(config, built));
  RETURN_IF_ERROR(agree_on_memory(parallel, runner->pool_.get(), &plan));
  runner->plan_ = plan;
  runner->model_ = std::move(built.model);
  runner->draft_ = std::move(built.draft);
  runner->num_aux_layers_ = built.num_aux_layers;
  if (!device.is_cpu()) RETURN_IF_ERROR(runner->reserve());
  runner->stream_.set_fixed_rows(config.engine.device.deterministic);
  runner->trace_.attach(runner->queue_.get());
  runner->stream_.set_trace(&runner->trace_);
  const Stream& stream = runner->stream_;
  const auto on_weights = [&](uint64_t done, uint64_t total) {
    if (progress) progress({StartProgress::Stage::kWeights, done, total});
  };
  RETURN_IF_ERROR(load_weights(config, stream, *runner->model_, runner->draft_.get(), on_weights));
  runner->storage_ = make_layer_storage(stream, built.storage, plan.storage_size());
  runner->workspace_ = Workspace(stream, plan.workspace);
  runner->input_builder_.emplace(limits_of_parts(config.scheduler, parallel.context_parallel_size),
                                 stream);
  runner->context_arrays_ =
      ContextRows::make_arrays(config.scheduler, parallel.context_parallel_size, stream);
  runner->max_rows_ = max_logits_rows(config.scheduler, device);
  runner->row_ids_.emplace(stream, runner->max_rows_, kMaxDeviceSteps);
  if (method != SpeculativeMethod::kOff && parallel.samples()) {
    runner->drafter_.emplace(config, parallel, runner->draft_.get(), num_sampled_ids, stream);
  }
  if (!device.is_cpu()) RETURN_IF_ERROR(runner->prepare_device(progress));
  // From here on tokens are to count.
  if (parallel.moves_experts) {
    runner->expert_balancer_ = std::make_unique<ExpertBalancer>(
        config.engine.parallel.eplb, parallel, std::move(built.moving_experts), stream);
  }
  RETURN_IF_ERROR(parallel.status());
  if (!device.is_cpu()) {
    log::info("{} of the {} that were planned are taken",
              human_bytes(runner->num_device_bytes()),
              human_bytes(plan.total()));
  }
  return runner;
}

Status ModelRunner::reserve() {
  queue_ = runtime_->create_queue();
  ASSIGN_OR_RETURN(arena_, DeviceArena::reserve(*runtime_, plan_.total()));
  stream_ = Stream(pool_.get(), queue_.get(), arena_.get());
  return {};
}

Status ModelRunner::prepare_device(const std::function<void(const StartProgress&)>& progress) {
  device_sampler_.emplace(*runtime_,
                          stream_,
                          max_rows_,
                          config_.model.vocab_size,
                          num_sampled_ids_,
                          parallel_.context_parallel);
  for (StepEvents& events : events_) events = {queue_->create_event(), queue_->create_event()};
  const DeviceConfig& options = config_.engine.device;
  if (draft_ != nullptr) {
    draft_states_ = resident_tensor(stream_, draft_states_shape(config_, *draft_), config_.dtype);
  }
  const size_t num_sizes = DecodeGraphs::shapes(config_).size();
  // Nodes would choose different algorithms, with other last bits, where ranks have to agree.
  const bool tunes = options.enable_tuning && !parallel_.shares_layers_over_nodes();
  const size_t num_tuned = tunes ? num_sizes + 1 : 0;  // and a prefill
  // Drafts of copies that share experts take as many passes as any of them needs.
  const bool records = options.enable_graphs && parallel_.can_be_recorded() &&
                       !(parallel_.copies_share_experts() && drafter_.has_value());
  if (options.enable_graphs && !parallel_.can_be_recorded()) {
    log::info("steps are not recorded: ranks on other nodes are reached by way of the host");
  }
  const size_t total = num_tuned + (records ? num_sizes : 0);
  size_t done = 0;
  const auto advance = [&] {
    if (progress) progress({StartProgress::Stage::kGraphs, ++done, total});
  };
  // Memory is taken while no card waits for another.
  parallel_.meet(pool_.get());
  if (tunes) tune_linears(advance);
  return records ? record_graphs(advance) : Status();
}

Status ModelRunner::record_graphs(const std::function<void()>& advance) {
  const auto prepare = [&](const DecodeShape& shape) {
    CHECK(device_sampler_->send_rows({}, shape.num_tokens()));
    return input_builder_->build_decodes({}, {}, shape);
  };
  const auto run_step = [&](const StepInputs& inputs, SamplingKind kind) {
    const Workspace::Scope scope(workspace_);
    return decode(inputs, kind);
  };
  const Clock::time_point begin = Clock::now();
  const std::vector<DecodeShape> shapes = DecodeGraphs::shapes(config_);
  const auto meet = [&] { parallel_.meet(pool_.get()); };
  RETURN_IF_ERROR(graphs_.record(stream_, shapes, prepare, run_step, meet, advance));
  RETURN_IF_ERROR(record_drafts(shapes));
  const std::chrono::duration<double> took = Clock::now() - begin;
  log::info("recorded decode steps of {} sizes in {:.2f} s", graphs_.size(), took.count());
  return {};
}

Status ModelRunner::record_drafts(const std::vector<DecodeShape>& shapes) {
  if (!drafter_ || draft_ == nullptr) return {};
  for (const DecodeShape& shape : shapes) {
    const Workspace::Scope scope(workspace_);
    const StepInputs inputs = input_builder_->build_decodes({}, {}, shape);
    const Tensor states = kept_states(shape.num_tokens());
    parallel_.meet(pool_.get());
    RETURN_IF_ERROR(drafter_->record(shape, states, context_of_replayed(inputs)));
  }
  return {};
}

}  // namespace atom
