#include "cli/bench_breakdown.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <utility>

#include "cli/bench_ranks.h"
#include "cli/bench_report.h"
#include "cli/bench_work.h"
#include "models/registry.h"
#include "runner/choose_device.h"
#include "runner/model_runner.h"

namespace atom::cli {
namespace {

constexpr int kWarmups = 2;

// Steps of made-up sequences that a ModelRunner takes as if a scheduler had ordered them.
class StepMaker {
 public:
  StepMaker(const ResolvedConfig& config, const MemoryPlan& plan) : config_(config), plan_(plan) {}

  // An error when the batch does not fit into what was planned.
  Status check(const BatchShape& shape) const {
    const int64_t num_blocks = shape.batch * blocks_of(shape, /*is_prefill=*/shape.output_len == 1);
    const bool has_slots = plan_.num_state_slots == 0 || plan_.num_state_slots >= shape.batch;
    if (num_blocks <= plan_.num_blocks && has_slots) return {};
    return resource_exhausted(
        "{} sequences of {} tokens need {} KV blocks, and a slot each where there are recurrent "
        "states; memory is enough for {} blocks and {} slots",
        shape.batch,
        shape.input_len,
        num_blocks,
        plan_.num_blocks,
        plan_.num_state_slots);
  }

  // The next token of each of `batch` sequences that have `input_len` tokens, or, for `is_prefill`,
  // all of these tokens. What lies in the cache matters for the time only where an indexer selects.
  SchedulerOutput make(const BatchShape& shape, bool is_prefill) {
    std::uniform_int_distribution<int32_t> any_token(0, config_.model.vocab_size - 1);
    SchedulerOutput step;
    step.step = num_steps_++;
    step.finished = std::exchange(running_, {});
    const auto num_blocks = static_cast<int32_t>(num_blocks_for(shape.input_len, plan_.block_size));
    int32_t next_block = 0;
    for (int32_t i = 0; i < shape.batch; ++i) {
      NewSequence& added = step.new_sequences.emplace_back();
      added.id = ++last_id_;
      added.prompt_token_ids.resize(shape.input_len);
      for (int32_t& id : added.prompt_token_ids) id = any_token(random_);
      added.sampling.temperature = 0;
      added.sampling.seed = 0;
      ScheduledSequence& scheduled = step.scheduled.emplace_back();
      scheduled.id = added.id;
      scheduled.num_new_tokens = is_prefill ? shape.input_len : 1;
      scheduled.num_computed_tokens = shape.input_len - scheduled.num_new_tokens;
      scheduled.reset_block_table = true;
      if (plan_.num_state_slots > 0) scheduled.state_slots = {i};
      for (int32_t b = 0; b < num_blocks; ++b) {
        for (int32_t group = 0; group < config_.scheduler.num_kv_groups; ++group) {
          const bool is_behind = b < first_block(group, scheduled.num_computed_tokens);
          scheduled.new_block_ids.push_back(is_behind ? -1 : next_block++);
        }
      }
      scheduled.num_sampled = 1;
      step.num_tokens += scheduled.num_new_tokens;
      running_.push_back(added.id);
    }
    return step;
  }

 private:
  // Of a group of layers, that a query at `position` sees anything of.
  int32_t first_block(int32_t group, int32_t position) const {
    const SchedulerConfig& scheduler = config_.scheduler;
    return scheduler.window_of_group(group) == 0 ? 0 : scheduler.num_blocks_behind(position);
  }
  // Of a sequence, all groups.
  int64_t blocks_of(const BatchShape& shape, bool is_prefill) const {
    const int64_t num_blocks = num_blocks_for(shape.input_len, plan_.block_size);
    int64_t total = 0;
    for (int32_t group = 0; group < config_.scheduler.num_kv_groups; ++group) {
      total += num_blocks - first_block(group, is_prefill ? 0 : shape.input_len - 1);
    }
    return total;
  }

  const ResolvedConfig& config_;
  const MemoryPlan& plan_;
  uint64_t num_steps_ = 0;
  SequenceId last_id_ = 0;
  std::vector<SequenceId> running_;
  std::mt19937_64 random_;
};

double total_seconds(const std::vector<OperatorRun>& runs) {
  return runs.empty() ? 0 : runs.back().begin + runs.back().seconds;
}

// Which of the model's linears has a weight of so many elements.
std::string_view linear_name(const ModelConfig& model, int64_t num_elements) {
  const int64_t hidden = model.hidden_size;
  const std::pair<int64_t, std::string_view> names[] = {
      {hidden * (model.q_size() + 2 * model.kv_size()), "linear qkv"},
      {hidden * model.q_size(), "linear output"},
      {hidden * 2 * model.intermediate_size, "linear gate and up"},
      {hidden * model.intermediate_size, "linear down"},
      {hidden * model.vocab_size, "linear head"},
  };
  for (const auto& [size, name] : names) {
    if (size == num_elements) return name;
  }
  return "linear";
}

// `num_rows`: of every linear but the head, which has one for each sequence. A rank has one of
// `num_parts` parts of each.
void name_linears(const ModelConfig& model,
                  int64_t num_rows,
                  int64_t batch,
                  int64_t num_parts,
                  std::vector<OperatorRun>* runs) {
  OperatorRun* last = nullptr;
  for (OperatorRun& run : *runs) {
    if (!run.op.starts_with("linear")) continue;
    run.op = linear_name(model, num_parts * run.work.flops / (2 * num_rows));
    last = &run;
  }
  if (last != nullptr) last->op = linear_name(model, num_parts * last->work.flops / (2 * batch));
}

// Only the device knows how much of the cache attention reads. `model` is a rank's, whose cache has
// its heads alone.
void add_attention_work(const ModelWork& model,
                        const BatchShape& shape,
                        bool is_prefill,
                        int64_t num_parts,
                        std::vector<OperatorRun>* runs) {
  const StepWork work = is_prefill ? prefill_work(model, shape.batch, shape.input_len)
                                   : decode_work(model, shape.batch, shape.input_len);
  const auto layers = static_cast<int64_t>(model.windows.size());
  for (OperatorRun& run : *runs) {
    if (run.op != "attention") continue;
    run.work.bytes += work.kv_bytes / layers;
    run.work.flops += work.attention_flops / layers / num_parts;
  }
}

// "[1,8]" of decodes.
std::string batches_text(const std::vector<BatchShape>& shapes) {
  std::set<int32_t> batches;
  for (const BatchShape& shape : shapes) {
    if (shape.output_len > 1) batches.insert(shape.batch);
  }
  return fmt::format("[{}]", fmt::join(batches, ","));
}

// The configuration that these steps need: recorded decodes of their batches alone, and room for
// the largest.
EngineConfig fitted(EngineConfig engine, const std::vector<BatchShape>& shapes) {
  SchedulerOptions& scheduler = engine.scheduler;
  for (const BatchShape& shape : shapes) {
    const int32_t num_tokens = shape.output_len == 1 ? shape.batch * shape.input_len : shape.batch;
    scheduler.max_num_seqs = std::max(scheduler.max_num_seqs, shape.batch);
    scheduler.max_num_batched_tokens =
        std::max({scheduler.max_num_batched_tokens, num_tokens, scheduler.max_num_seqs});
    engine.model.max_model_len = std::max(engine.model.max_model_len, shape.input_len + 1);
  }
  engine.device.recorded_batches = batches_text(shapes);
  // The other ranks of a traced step would replay it.
  if (engine.parallel.ranks_of_stage() > 1) engine.device.enable_graphs = false;
  return engine;
}

// Of the fastest replay of a recorded decode step.
double recorded_seconds(const BatchShape& shape,
                        int32_t num_iters,
                        StepMaker* maker,
                        BenchRanks* ranks) {
  std::chrono::duration<double> best = std::chrono::nanoseconds::max();
  for (int32_t i = 0; i < num_iters; ++i) {
    best = std::min<std::chrono::duration<double>>(best, ranks->run(maker->make(shape, false)));
  }
  return best.count();
}

// Operator by operator, since a recorded step tells nobody.
ExpertLoad load_of(const SchedulerOutput& step, BenchRanks* ranks) {
  ExpertCounter counter;
  ranks->first().observe(&counter);
  ranks->run(step);
  ranks->first().observe(nullptr);
  return counter.load();
}

StepBreakdown measure_step(const BatchShape& shape,
                           int32_t num_iters,
                           const ResolvedConfig& config,
                           const ModelWork& work,
                           StepMaker* maker,
                           BenchRanks* ranks) {
  const bool is_prefill = shape.output_len == 1;
  StepBreakdown breakdown;
  breakdown.name = fmt::format(
      "{} of {}, {} tokens each", is_prefill ? "prefill" : "decode", shape.batch, shape.input_len);
  OperatorTrace& trace = ranks->first().operator_trace();
  for (int i = 0; i < kWarmups; ++i) ranks->run(maker->make(shape, is_prefill));
  for (int32_t i = 0; i < num_iters; ++i) {
    const SchedulerOutput step = maker->make(shape, is_prefill);
    trace.start(OperatorTrace::kHeadStart);
    ranks->run(step);
    std::vector<OperatorRun> runs = trace.stop();
    if (i == 0 || total_seconds(runs) < total_seconds(breakdown.runs)) {
      breakdown.runs = std::move(runs);
    }
  }
  const int64_t num_rows = is_prefill ? int64_t{shape.batch} * shape.input_len : shape.batch;
  const int32_t num_parts = config.engine.parallel.tensor_parallel_size;
  name_linears(config.model, num_rows, shape.batch, num_parts, &breakdown.runs);
  add_attention_work(work, shape, is_prefill, num_parts, &breakdown.runs);
  breakdown.seconds = total_seconds(breakdown.runs);
  if (!is_prefill) breakdown.num_launches = ranks->first().num_launches(shape.batch);
  breakdown.evenly_chosen = evenly_chosen(work, num_rows);
  if (work.num_experts > 0) breakdown.experts = load_of(maker->make(shape, is_prefill), ranks);
  if (breakdown.num_launches > 0) {
    breakdown.work = decode_work(work, shape.batch, shape.input_len, breakdown.experts.num_chosen);
    breakdown.recorded_seconds = recorded_seconds(shape, num_iters, maker, ranks);
  }
  breakdown.operators = total_operators(breakdown.runs);
  return breakdown;
}

}  // namespace

std::vector<OperatorTotal> total_operators(const std::vector<OperatorRun>& runs) {
  std::vector<OperatorTotal> totals;
  std::vector<OperatorWork> works;  // of one call of each total
  for (const OperatorRun& run : runs) {
    size_t i = 0;
    while (i < totals.size() &&
           !(totals[i].op == run.op && totals[i].variant == run.variant && works[i] == run.work)) {
      ++i;
    }
    if (i == totals.size()) {
      totals.push_back({std::string(run.op), std::string(run.variant)});
      works.push_back(run.work);
    }
    OperatorTotal& total = totals[i];
    ++total.num_calls;
    total.seconds += run.seconds;
    total.work.bytes += run.work.bytes;
    total.work.flops += run.work.flops;
    total.work.is_fp8 = run.work.is_fp8;
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) {
    return a.seconds > b.seconds;
  });
  return totals;
}

double share_of_roof(const OperatorTotal& total, const ops::Roofs& roofs, DType dtype) {
  StepWork work;
  work.kv_bytes = total.work.bytes;
  work.flops = total.work.flops;
  work.fp8_flops = total.work.is_fp8 ? work.flops : 0;
  return total.seconds > 0 ? least_seconds(work, roofs, dtype) / total.seconds : 0;
}

Result<BreakdownReport> break_down(const EngineConfig& engine,
                                   const std::vector<BatchShape>& shapes,
                                   int32_t num_iters) {
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(engine.model.model));
  ASSIGN_OR_RETURN(const ResolvedConfig config, resolve(fitted(engine, shapes), model));
  ASSIGN_OR_RETURN(const Device device, choose_device(engine.device));
  std::unique_ptr<DeviceQueue> queue;
  if (!device.is_cpu()) {
    ASSIGN_OR_RETURN(queue, open_measured_queue(device));
  }
  const ParallelContext first = parallel_context(config.engine.parallel, /*rank=*/0);
  ASSIGN_OR_RETURN(const BuiltModel built, build_model(config, device, first));
  const ModelWork work = count_work(config, built);
  BreakdownReport report;
  report.model = fmt::format("{} in {}", config.model.architecture, work.types);
  report.machine = machine_text(device, config.num_threads);
  report.dtype = work.dtype;
  report.num_layers = config.model.num_hidden_layers;
  report.num_experts = work.num_experts;
  ASSIGN_OR_RETURN(const std::unique_ptr<BenchRanks> ranks, BenchRanks::create(config));
  ranks->first().fill_caches_at_random();
  StepMaker maker(config, ranks->first().memory_plan());
  for (const BatchShape& shape : shapes) {
    RETURN_IF_ERROR(maker.check(shape));
    report.steps.push_back(measure_step(shape, num_iters, config, work, &maker, ranks.get()));
  }
  ThreadPool pool(config.num_threads);
  const Stream stream = queue ? Stream(&pool, queue.get()) : Stream(&pool);
  report.roofs = ops::measure_roofs(stream, roof_seconds(device));
  return report;
}

}  // namespace atom::cli
