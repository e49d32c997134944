// atom pull: downloads a model into the cache.
#include <fmt/format.h>

#include <memory>

#include "base/human.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/fetch_checkpoint.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "config/flags.h"
#include "hub/hub.h"

namespace atom::cli {
namespace {

constexpr const char* kPullDescription =
    "Downloads a model from the Hugging Face hub and prints the folder that holds it. NAME is "
    "ORGANIZATION/MODEL, perhaps with @REVISION. Only what atom reads is downloaded: safetensors, "
    "configuration, tokenizer. The cache is the one that huggingface_hub uses: what is there "
    "already is not downloaded again, and a download that was cut is resumed.\n"
    "HF_TOKEN (or the token that 'hf auth login' stored) opens gated and private models; "
    "HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE count as everywhere. Every other "
    "command takes NAME for a checkpoint as well.";

struct PullOptions {
  EngineConfig config;
  std::string cache_folder;
  int32_t max_connections = hub::HubOptions().max_connections;
};

std::string summary(const hub::Snapshot& snapshot) {
  const std::string what = fmt::format("{}@{}: {} files, {}",
                                       snapshot.name,
                                       snapshot.commit.substr(0, 12),
                                       snapshot.num_files,
                                       human_bytes(static_cast<int64_t>(snapshot.num_bytes)));
  if (snapshot.num_downloaded_bytes == 0) {
    return fmt::format("{}, all in the cache → {}", what, snapshot.folder);
  }
  const double rate = static_cast<double>(snapshot.num_downloaded_bytes) / snapshot.seconds / 1e6;
  return fmt::format("pulled {}, {:.1f} MB/s → {}", what, rate, snapshot.folder);
}

Result<hub::Snapshot> pull_model(const hub::ModelName& name, const PullOptions& options) {
  RETURN_IF_ERROR(apply_log_flags(options.config));
  ASSIGN_OR_RETURN(hub::HubOptions hub_options, hub::options_from_environment());
  hub_options.revision = options.config.model.revision;
  hub_options.max_connections = options.max_connections;
  if (!options.cache_folder.empty()) hub_options.cache_folder = options.cache_folder;
  PullProgress progress;
  Result<hub::Snapshot> snapshot = hub::pull(
      name, hub_options, [&](const hub::Progress& state) { return progress.show(state); });
  progress.finish();
  return snapshot;
}

int run_pull(const PullOptions& options, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return fail_usage("pull", invalid_argument("NAME is missing: a model, as Qwen/Qwen3-0.6B"));
  }
  if (arguments.size() > 1) {
    return fail_usage("pull", invalid_argument("unexpected argument '{}'", arguments[1]));
  }
  const std::optional<hub::ModelName> name = hub::parse_model_name(arguments[0]);
  if (!name) {
    return fail_usage(
        "pull",
        invalid_argument("'{}' is no model of a hub; expected ORGANIZATION/MODEL[@REVISION]",
                         arguments[0].substr(0, 200)));
  }
  const Result<hub::Snapshot> snapshot = pull_model(*name, options);
  if (!snapshot.ok()) return fail(snapshot.status());
  note(summary(*snapshot));
  return write_out(snapshot->folder + "\n") ? kExitOk : end_of_output();
}

}  // namespace

Command make_pull_command() {
  const auto options = std::make_shared<PullOptions>();
  Command command;
  command.name = "pull";
  command.arguments = "NAME[@REVISION]";
  command.summary = "download a model from the Hugging Face hub";
  command.description = kPullDescription;
  command.options = {text_option("--cache-dir",
                                 "Download",
                                 "FOLDER",
                                 "Cache to use instead of HF_HUB_CACHE, else $HF_HOME/hub, else "
                                 "~/.cache/huggingface/hub.",
                                 &options->cache_folder),
                     int_option("--max-connections",
                                "Download",
                                1,
                                64,
                                "Connections to download over at once.",
                                &options->max_connections)};
  for (Option& option : engine_flags(kCommandPull, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_pull(*options, arguments);
  };
  return command;
}

}  // namespace atom::cli
