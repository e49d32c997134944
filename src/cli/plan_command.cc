// atom plan: what an engine would hold in memory, before anything is loaded.
#include <memory>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "base/human.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/fetch_checkpoint.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/simulate/simulation.h"
#include "cli/start_engine.h"
#include "cli/table.h"
#include "config/dp_environment.h"
#include "config/flags.h"
#include "models/registry.h"
#include "runner/choose_device.h"
#include "runner/local_ranks.h"
#include "runner/memory_plan.h"
#include "runner/model_source.h"

namespace atom::cli {
namespace {

constexpr const char* kPlanDescription =
    "Computes the memory that an engine with these flags takes, exactly and without loading "
    "anything: config.json is enough. Exit code 1 when it does not fit.";

struct PlanOptions {
  EngineConfig config;
  bool json = false;
  bool simulate = false;
  simulate::Question question;
};

struct PlannedEngine {
  ResolvedConfig config;
  MemoryPlan plan;
};

Result<ResolvedConfig> resolve_asked(EngineConfig engine) {
  RETURN_IF_ERROR(apply_log_flags(engine));
  RETURN_IF_ERROR(apply_dp_environment(env(), &engine));
  RETURN_IF_ERROR(fetch_checkpoint(hub::FileSet::kWithoutWeights, &engine.model));
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(engine.model.model));
  return resolve(engine, model);
}

Result<PlannedEngine> plan_engine(const EngineConfig& engine) {
  ASSIGN_OR_RETURN(ResolvedConfig config, resolve_asked(engine));
  ASSIGN_OR_RETURN(const Device device, choose_device(config.engine.device.device));
  ASSIGN_OR_RETURN(const BuiltModel built,
                   build_model(config,
                               device,
                               parallel_context(config.engine.parallel,
                                                /*rank=*/0,
                                                config.copies_share_experts)));
  ASSIGN_OR_RETURN(const MemoryPlan plan, plan_memory(config, built));
  return PlannedEngine{std::move(config), plan};
}

int64_t full_sequences(const PlannedEngine& engine) {
  return engine.plan.num_cached_tokens() / engine.config.max_model_len();
}

// What a block has and what sequences take of them.
std::string kv_cache_text(const PlannedEngine& engine) {
  const MemoryPlan& plan = engine.plan;
  std::string text = fmt::format("{}, {} blocks of {} tokens",
                                 dtype_name(engine.config.kv_cache_dtype),
                                 plan.num_blocks,
                                 plan.block_size);
  if (plan.kv_bytes_per_token() > 0) {
    text += fmt::format(", {} a token", human_bytes(plan.kv_bytes_per_token()));
  }
  if (plan.window_blocks_per_sequence > 0) {
    text += fmt::format(
        "{}, and in layers with a window of {} up to {} a sequence, {} when its prompt is done",
        plan.kv_bytes_per_token() > 0 ? " in full layers" : "",
        engine.config.scheduler.kv_window,
        human_bytes(plan.window_bytes_per_sequence()),
        human_bytes(plan.window_bytes_in_decode()));
  }
  return text + fmt::format(": {} tokens, or {} sequences of {}",
                            plan.num_cached_tokens(),
                            full_sequences(engine),
                            engine.config.max_model_len());
}

std::string weights_text(const ResolvedConfig& config) {
  const QuantConfig& quantization = config.model.quantization;
  if (!quantization.is_quantized()) return dtype_name(config.dtype);
  return fmt::format("{}, the rest {}", quantization.to_string(), dtype_name(config.dtype));
}

std::string plan_table(const PlannedEngine& engine) {
  const MemoryPlan& plan = engine.plan;
  Table table({{"part", Table::Align::kLeft},
               {"size", Table::Align::kRight},
               {"what it is", Table::Align::kLeft}});
  table.add_row({"weights",
                 human_bytes(plan.weights),
                 fmt::format("{}, as the kernels of this machine store them, and rope tables",
                             weights_text(engine.config))});
  table.add_row(
      {"activations",
       human_bytes(plan.workspace),
       fmt::format("steps of up to {} tokens", engine.config.scheduler.max_num_batched_tokens)});
  table.add_row({"step inputs",
                 human_bytes(plan.step_inputs),
                 fmt::format("up to {} sequences", engine.config.scheduler.max_num_seqs)});
  table.add_row({"KV cache", human_bytes(plan.kv_cache()), kv_cache_text(engine)});
  if (plan.num_state_slots > 0) {
    table.add_row({"states",
                   human_bytes(plan.states()),
                   fmt::format("{} a sequence, {} slots: {} of running sequences, {} ({}) of "
                               "checkpoints for prefixes",
                               human_bytes(plan.state_bytes_per_slot),
                               plan.num_state_slots,
                               plan.num_state_slots - plan.num_checkpoint_slots,
                               plan.num_checkpoint_slots,
                               human_bytes(plan.checkpoints()))});
  }
  table.add_separator();
  table.add_row({"total",
                 human_bytes(plan.total()),
                 fmt::format("of {} allowed, {} {}",
                             human_bytes(plan.budget),
                             human_bytes(plan.available),
                             engine.config.engine.device.assumed_memory > 0
                                 ? "assumed"
                                 : "free on " + plan.device.to_string())});
  const int32_t num_ranks = plan.num_ranks;
  if (num_ranks == 1) return table.to_string();
  return table.to_string() +
         fmt::format("Each of {} ranks takes that; this is the first.\n", num_ranks);
}

// All sizes in bytes.
OrderedJson plan_json(const PlannedEngine& engine) {
  const MemoryPlan& plan = engine.plan;
  return {{"architecture", engine.config.model.architecture},
          {"device", plan.device.to_string()},
          {"num_ranks", plan.num_ranks},
          {"dtype", dtype_name(engine.config.dtype)},
          {"quantization", engine.config.model.quantization.to_string()},
          {"kv_cache_dtype", dtype_name(engine.config.kv_cache_dtype)},
          {"max_model_len", engine.config.max_model_len()},
          {"max_num_seqs", engine.config.scheduler.max_num_seqs},
          {"max_num_batched_tokens", engine.config.scheduler.max_num_batched_tokens},
          {"weights", plan.weights},
          {"activations", plan.workspace},
          {"step_inputs", plan.step_inputs},
          {"kv_cache", plan.kv_cache()},
          {"kv_bytes_per_block", plan.kv_bytes_per_block},
          {"kv_bytes_per_token", plan.kv_bytes_per_token()},
          {"window_bytes_per_sequence", plan.window_bytes_per_sequence()},
          {"window_bytes_per_decoding_sequence", plan.window_bytes_in_decode()},
          {"block_size", plan.block_size},
          {"num_blocks", plan.num_blocks},
          {"num_cached_tokens", plan.num_cached_tokens()},
          {"states", plan.states()},
          {"state_bytes_per_slot", plan.state_bytes_per_slot},
          {"num_state_slots", plan.num_state_slots},
          {"num_checkpoint_slots", plan.num_checkpoint_slots},
          {"num_full_sequences", full_sequences(engine)},
          {"total", plan.total()},
          {"allowed", plan.budget},
          {"available", plan.available}};
}

int run_simulation(const PlanOptions& options) {
  const ParallelConfig& parallel = options.config.parallel;
  if (parallel.ranks_of_copy() > 1 || parallel.data_parallel_size > 1) {
    return fail_usage("plan",
                      invalid_argument("--simulate computes layouts of its own: no parallel flags "
                                       "beside it; --simulate-inputs has gpus_per_node"));
  }
  const Result<ResolvedConfig> config = resolve_asked(options.config);
  if (!config.ok()) return fail(config.status());
  const Result<simulate::Simulation> simulation = simulate::simulate(*config, options.question);
  if (!simulation.ok()) return fail(simulation.status());
  const std::string text = options.json ? to_line(simulate::simulation_json(*simulation))
                                        : simulate::simulation_text(*simulation);
  return write_out(text) ? kExitOk : end_of_output();
}

int run_plan(PlanOptions* options, std::vector<std::string> arguments) {
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("plan", status);
  }
  if (!arguments.empty()) {
    return fail_usage("plan", invalid_argument("unexpected argument '{}'", arguments.front()));
  }
  if (options->simulate) return run_simulation(*options);
  const Result<PlannedEngine> engine = plan_engine(options->config);
  if (!engine.ok()) return fail(engine.status());
  const std::string text = options->json ? to_line(plan_json(*engine)) : plan_table(*engine);
  return write_out(text) ? kExitOk : end_of_output();
}

}  // namespace

Command make_plan_command() {
  const auto options = std::make_shared<PlanOptions>();
  Command command;
  command.name = "plan";
  command.arguments = "CHECKPOINT";
  command.summary = "the exact memory plan, before anything is loaded";
  command.description = kPlanDescription;
  command.options = {
      switch_option("--json", "Output", "One JSON object, sizes in bytes.", &options->json),
      switch_option("--simulate",
                    "Simulation",
                    "Instead: the expected time of a decode step on a node of GPUs and on up to "
                    "64, with every assumption.",
                    &options->simulate),
      int_option("--simulate-sequences",
                 "Simulation",
                 1,
                 65536,
                 "Sequences for each GPU.",
                 &options->question.sequences_per_gpu),
      int_option("--simulate-context",
                 "Simulation",
                 1,
                 1 << 24,
                 "Tokens of context of each sequence.",
                 &options->question.context),
      text_option("--simulate-inputs",
                  "Simulation",
                  "JSON",
                  "Other figures than the assumed ones, by the names that --simulate prints.",
                  &options->question.inputs)};
  for (Option& option : engine_flags(kCommandPlan, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_plan(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
