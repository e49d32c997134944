#include "cli/start_engine.h"

#include <optional>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "cli/fetch_checkpoint.h"
#include "cli/progress_bar.h"

namespace atom::cli {

Status take_checkpoint(std::vector<std::string>* arguments, EngineConfig* config) {
  std::string& model = config->model.model;
  if (model.empty()) {
    if (arguments->empty() || arguments->front().empty()) {
      return invalid_argument(
          "CHECKPOINT is missing: the folder of a model (config.json, *.safetensors, tokenizer), "
          "or its name on the hub (Qwen/Qwen3-0.6B)");
    }
    model = arguments->front();
    arguments->erase(arguments->begin());
  }
  return {};
}

Status refuse_arguments(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return {};
  return invalid_argument("unexpected argument '{}'", arguments[0]);
}

Status apply_log_flags(const EngineConfig& config) {
  std::string name = config.log_level.empty() ? env().log_level : config.log_level;
  if (name.empty()) name = "warning";
  ASSIGN_OR_RETURN(const log::Level level, log::parse_level(name));
  std::string format_name = config.log_format.empty() ? env().log_format : config.log_format;
  if (format_name.empty()) format_name = "text";
  ASSIGN_OR_RETURN(const log::Format format, log::parse_format(format_name));
  log::set_level(level);
  log::set_format(format);
  return {};
}

Result<std::unique_ptr<LLMEngine>> start_engine(
    const EngineConfig& config,
    CoreLaunch launch,
    const std::function<Status(const ModelSourceConfig&)>& check) {
  RETURN_IF_ERROR(apply_log_flags(config));
  for (const std::string& line : env().notes) log::warning("{}", line);
  EngineConfig fetched = config;
  if (env().enforce_eager) {
    log::warning("ATOM_ENFORCE_EAGER is set: the same as --enforce-eager");
    fetched.device.enable_graphs = false;
  }
  const bool needs_weights = config.model.load_dummy == DummyWeights::kNone;
  RETURN_IF_ERROR(fetch_checkpoint(
      needs_weights ? hub::FileSet::kAll : hub::FileSet::kWithoutWeights, &fetched.model));
  if (check) RETURN_IF_ERROR(check(fetched.model));
  std::optional<ProgressBar> bar;
  std::optional<LoadingStage> stage;
  uint64_t shown = 0;
  LLMEngineOptions options;
  options.launch = std::move(launch);
  options.on_loading = [&](const CoreLoading& loading) {
    if (stage != loading.stage) {
      stage = loading.stage;
      shown = 0;
      const bool has_weights = loading.stage == LoadingStage::kGraphs;
      if (has_weights) {
        bar.emplace("preparing decode steps", loading.total, ProgressUnit::kCount);
      } else {
        bar.emplace("loading", loading.total);
      }
    }
    bar->advance(loading.done - shown);
    shown = loading.done;
  };
  return LLMEngine::create(fetched, std::move(options));
}

}  // namespace atom::cli
