#include "cli/start_engine.h"

#include <optional>

#include "base/env.h"
#include "base/log.h"
#include "cli/progress_bar.h"

namespace atom::cli {

Status take_checkpoint(std::vector<std::string>* arguments, EngineConfig* config) {
  std::string& model = config->model.model;
  if (model.empty()) {
    if (arguments->empty() || arguments->front().empty()) {
      return invalid_argument(
          "CHECKPOINT is missing: the folder of a model (config.json, "
          "*.safetensors, tokenizer)");
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

Status apply_log_level(const EngineConfig& config) {
  std::string name = config.log_level.empty() ? env().log_level : config.log_level;
  if (name.empty()) name = "warning";
  ASSIGN_OR_RETURN(const log::Level level, log::parse_level(name));
  log::set_level(level);
  return {};
}

Result<std::unique_ptr<LLMEngine>> start_engine(const EngineConfig& config) {
  RETURN_IF_ERROR(apply_log_level(config));
  std::optional<ProgressBar> bar;
  int64_t shown = 0;
  return LLMEngine::create(config, [&](const CoreLoading& loading) {
    if (!bar) bar.emplace("loading", static_cast<uint64_t>(loading.bytes_total));
    bar->advance(static_cast<uint64_t>(loading.bytes_done - shown));
    shown = loading.bytes_done;
  });
}

}  // namespace atom::cli
