// atom plan: what an engine would hold in memory, before anything is loaded.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "cli/table.h"
#include "config/flags.h"
#include "models/registry.h"
#include "runner/memory_plan.h"
#include "runner/model_source.h"

namespace atom::cli {
namespace {

constexpr const char* kDescription =
    "Prints the memory that an engine with these options takes, to the byte, without loading "
    "anything: config.json is enough. Exit code 1 when it does not fit into the memory that is "
    "free "
    "now.";

struct PlanOptions {
  EngineConfig config;
  bool json = false;
};

struct Planned {
  ResolvedConfig config;
  MemoryPlan memory;

  int64_t max_model_len_sequences() const {
    const int64_t length = config.max_model_len();
    const int64_t blocks = (length + memory.block_size - 1) / memory.block_size;
    return memory.num_blocks / blocks;
  }
};

Result<Planned> plan(const EngineConfig& engine) {
  ASSIGN_OR_RETURN(const ModelConfig model, load_model_config(engine.model.model));
  Planned planned;
  ASSIGN_OR_RETURN(planned.config, resolve(engine, model));
  ASSIGN_OR_RETURN(const BuiltModel built, build_model(planned.config));
  ASSIGN_OR_RETURN(planned.memory, plan_memory(planned.config, *built.model, built.kv_cache_specs));
  return planned;
}

std::string plan_table(const Planned& planned) {
  const MemoryPlan& memory = planned.memory;
  Table table(
      {{"", Table::Align::kLeft}, {"", Table::Align::kRight}, {"bytes", Table::Align::kRight}});
  const auto bytes = [&](const char* what, int64_t amount) {
    table.add_row({what, human_bytes(amount), fmt::format("{}", amount)});
  };
  const auto count = [&](const std::string& what, int64_t amount) {
    table.add_row({what, fmt::format("{}", amount), ""});
  };
  bytes("weights", memory.weights);
  bytes("activations", memory.workspace);
  bytes("step inputs", memory.step_inputs);
  bytes("KV cache", memory.kv_cache());
  table.add_separator();
  bytes("total", memory.total());
  bytes("allowed", memory.budget);
  bytes("free now", memory.available);
  table.add_separator();
  bytes("KV cache per token", memory.kv_bytes_per_block / memory.block_size);
  bytes("KV cache per block", memory.kv_bytes_per_block);
  count("tokens per block", memory.block_size);
  count("blocks", memory.num_blocks);
  count("tokens cached", memory.num_cached_tokens());
  count(fmt::format("sequences of {} tokens at once", planned.config.max_model_len()),
        planned.max_model_len_sequences());
  return table.to_string();
}

OrderedJson plan_json(const Planned& planned) {
  const MemoryPlan& memory = planned.memory;
  return {{"fits", true},
          {"dtype", dtype_name(planned.config.dtype)},
          {"weights", memory.weights},
          {"activations", memory.workspace},
          {"step_inputs", memory.step_inputs},
          {"kv_cache", memory.kv_cache()},
          {"total", memory.total()},
          {"allowed", memory.budget},
          {"free", memory.available},
          {"kv_cache_per_token", memory.kv_bytes_per_block / memory.block_size},
          {"kv_cache_per_block", memory.kv_bytes_per_block},
          {"block_size", memory.block_size},
          {"num_blocks", memory.num_blocks},
          {"tokens_cached", memory.num_cached_tokens()},
          {"max_model_len", planned.config.max_model_len()},
          {"max_model_len_sequences", planned.max_model_len_sequences()}};
}

int run_plan(PlanOptions* options, std::vector<std::string> arguments) {
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("plan", status);
  }
  if (Status status = refuse_arguments(arguments); !status.ok()) return fail_usage("plan", status);
  if (Status status = apply_log_level(options->config); !status.ok()) return fail(status);
  const Result<Planned> planned = plan(options->config);
  if (!planned.ok()) {
    const Status& status = planned.status();
    if (options->json) {
      (void)write_out(to_line({{"fits", false}, {"error", status.message()}}));
    }
    return fail(status);
  }
  const std::string text = options->json ? to_line(plan_json(*planned)) : plan_table(*planned);
  return write_out(text) ? kExitOk : end_of_output();
}

}  // namespace

Command make_plan_command() {
  const auto options = std::make_shared<PlanOptions>();
  Command command;
  command.name = "plan";
  command.arguments = "CHECKPOINT";
  command.summary = "the memory that a model will take, before loading it";
  command.description = kDescription;
  command.options = {switch_option("--json", "Output", "One JSON object.", &options->json)};
  for (Option& option : engine_flags(kCommandPlan, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_plan(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
