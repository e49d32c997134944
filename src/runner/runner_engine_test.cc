#include "runner/runner_engine_test.h"

#include "runner/choose_device.h"

namespace atom {

Engine::Engine(const EngineConfig& engine, DeviceChoice device, SpanRecorder* recorder) {
  EngineConfig config = engine;
  if (config.model.model.empty()) config.model.model = demo_model_folder();
  config.model.max_model_len = kMaxModelLen;
  config.device.device = device;
  const ModelConfig model = load_model_config(config.model.model).value();
  const ResolvedConfig resolved = resolve(config, model).value();
  const Device first = choose_device(config.device).value();
  ranks_ = LocalRanks::create(config.parallel, first, std::chrono::seconds(60)).value();
  others_.resize(static_cast<size_t>(ranks_->size()) - 1);
  // The first of the last stage answers.
  const int answering = ranks_->size() - config.parallel.ranks_of_stage();
  const auto create = [&](int rank, SpanRecorder* told) {
    const ParallelContext& context = ranks_->context(rank);
    return ModelRunner::create(resolved, model.vocab_size, nullptr, told, context).value();
  };
  on_other_ranks(
      [&](size_t i) {
        const int rank = static_cast<int>(i);
        others_[i] = create(rank < answering ? rank : rank + 1, nullptr);
      },
      [&] { runner_ = create(answering, recorder); });
  SchedulerConfig scheduler = resolved.scheduler;
  scheduler.num_blocks = runner_->memory_plan().num_blocks;
  scheduler.num_state_slots = runner_->memory_plan().num_state_slots;
  scheduler_ = std::make_unique<Scheduler>(scheduler, model.eos_token_ids);
  num_allocations_ = runner_->num_device_allocations();
  if (!first.is_cpu()) {
    EXPECT_LE(runner_->num_device_bytes(), runner_->memory_plan().total());
    EXPECT_GE(runner_->num_device_bytes(), runner_->memory_plan().total() / 100 * 99);
  }
}

}  // namespace atom
