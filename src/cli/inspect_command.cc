// atom inspect: what a checkpoint is, tensor by tensor, and whether every tensor has its place.
#include <memory>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "cli/checkpoint_report.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/fetch_checkpoint.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "cli/style.h"
#include "cli/table.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kInspectDescription =
    "Says what a checkpoint folder holds: architecture, sizes, files, tokenizer, chat template, "
    "and "
    "with --tensors every tensor and the parameter it fills. Reads headers, no tensor data. Exit "
    "code 1 when the checkpoint would not load: an architecture that is not supported, a parameter "
    "without a tensor, a tensor that nothing takes.";

struct InspectOptions {
  EngineConfig config;
  bool tensors = false;
  bool json = false;
};

std::string dtypes_text(const CheckpointReport& report) {
  std::string text;
  for (const auto& [dtype, count] : report.num_dtypes) {
    text += fmt::format("{}{} ({} tensors)", text.empty() ? "" : ", ", dtype, count);
  }
  return text;
}

std::string summary_table(const CheckpointReport& report) {
  Table table({{"what", Table::Align::kLeft}, {"value", Table::Align::kLeft}});
  const bool supported = report.supported.ok();
  table.add_row({"architecture", report.architecture + (supported ? "" : " (not supported)")});
  table.add_row({"parameters", human_count(static_cast<double>(report.num_parameters))});
  table.add_row({"tensors", dtypes_text(report)});
  table.add_row({"size",
                 fmt::format("{} in {} file(s)",
                             human_bytes(static_cast<int64_t>(report.checkpoint->num_bytes())),
                             report.checkpoint->files().size())});
  if (report.config) {
    const ModelConfig& config = *report.config;
    table.add_row({"layers", std::to_string(config.num_hidden_layers)});
    table.add_row({"hidden size", std::to_string(config.hidden_size)});
    table.add_row({"MLP size", std::to_string(config.intermediate_size)});
    table.add_row({"attention heads",
                   fmt::format("{}, {} for keys and values, of {}",
                               config.num_attention_heads,
                               config.num_key_value_heads,
                               config.head_dim)});
    table.add_row({"vocabulary", std::to_string(config.vocab_size)});
    table.add_row({"context", fmt::format("{} tokens", config.max_position_embeddings)});
    table.add_row(
        {"rope", fmt::format("{}, theta {}", rope_type_name(config.rope.type), config.rope.theta)});
    if (config.quantization.is_quantized()) {
      table.add_row({"quantization",
                     fmt::format("{}: {}{}",
                                 config.quantization.method,
                                 config.quantization.to_string(),
                                 config.quantization.fp8_kv_cache ? ", fp8 KV cache" : "")});
    }
    table.add_row({"tied embeddings", config.tie_word_embeddings ? "yes" : "no"});
  }
  table.add_row({"tokenizer", report.tokenizer_file.empty() ? "none" : report.tokenizer_file});
  table.add_row({"chat template", report.chat_template.empty() ? "none" : report.chat_template});
  return table.to_string();
}

std::string destination(const TensorAccount& account) {
  switch (account.fate) {
    case TensorAccount::Fate::kLoaded:
      return account.parameter + (account.slice_id.empty() ? "" : " [" + account.slice_id + "]");
    case TensorAccount::Fate::kOtherRank:
      return "another rank's";
    case TensorAccount::Fate::kIgnored:
      return "ignored: " + account.reason;
    case TensorAccount::Fate::kUnclaimed:
      return "UNCLAIMED";
    case TensorAccount::Fate::kRefused:
      return "REFUSED: " + account.reason;
  }
  return "";
}

std::string tensors_table(const CheckpointReport& report) {
  Table table({{"tensor", Table::Align::kLeft},
               {"dtype", Table::Align::kLeft},
               {"shape", Table::Align::kLeft},
               {"size", Table::Align::kRight},
               {"fills", Table::Align::kLeft}});
  const std::vector<CheckpointTensor>& tensors = report.checkpoint->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    table.add_row({info.name,
                   info.dtype_name,
                   info.shape.to_string(),
                   human_bytes(static_cast<int64_t>(info.num_bytes)),
                   report.account ? destination(report.account->tensors[i]) : ""});
  }
  return table.to_string();
}

OrderedJson tensor_json(const CheckpointReport& report, size_t index) {
  const CheckpointTensor& tensor = report.checkpoint->tensors()[index];
  OrderedJson json = {
      {"name", tensor.info.name},
      {"dtype", tensor.info.dtype_name},
      {"shape", std::vector<int64_t>(tensor.info.shape.begin(), tensor.info.shape.end())},
      {"bytes", tensor.info.num_bytes},
      {"file", report.checkpoint->files()[tensor.file].path}};
  if (!report.account) return json;
  const TensorAccount& account = report.account->tensors[index];
  json["fate"] = fate_name(account.fate);
  if (!account.parameter.empty()) json["parameter"] = account.parameter;
  if (!account.slice_id.empty()) json["slice"] = account.slice_id;
  if (!account.reason.empty()) json["reason"] = account.reason;
  return json;
}

OrderedJson report_json(const CheckpointReport& report, bool with_tensors) {
  const Status loadable = report.loadable();
  OrderedJson json = {{"architecture", report.architecture},
                      {"supported", report.supported.ok()},
                      {"loadable", loadable.ok()},
                      {"num_parameters", report.num_parameters},
                      {"num_tensors", report.checkpoint->tensors().size()},
                      {"bytes", report.checkpoint->num_bytes()},
                      {"dtypes", report.num_dtypes},
                      {"tokenizer", report.tokenizer_file},
                      {"chat_template", report.chat_template}};
  if (report.config) json["quantization"] = report.config->quantization.to_string();
  if (!loadable.ok()) json["problem"] = loadable.message();
  if (report.account) {
    json["num_loaded"] = report.account->num_loaded;
    json["num_ignored"] = report.account->num_ignored;
    json["missing_parameters"] = report.account->missing_parameters;
  }
  if (!with_tensors) return json;
  json["tensors"] = OrderedJson::array();
  for (size_t i = 0; i < report.checkpoint->tensors().size(); ++i) {
    json["tensors"].push_back(tensor_json(report, i));
  }
  return json;
}

std::string report_text(const CheckpointReport& report, bool with_tensors) {
  std::string text = summary_table(report);
  if (with_tensors) text += "\n" + tensors_table(report);
  if (report.account && report.account->complete()) {
    text += fmt::format("\nEvery parameter is filled: {} tensors loaded, {} ignored by a rule.\n",
                        report.account->num_loaded,
                        report.account->num_ignored);
  }
  return text;
}

int run_inspect(InspectOptions* options, std::vector<std::string> arguments) {
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("inspect", status);
  }
  if (!arguments.empty()) {
    return fail_usage("inspect", invalid_argument("unexpected argument '{}'", arguments.front()));
  }
  if (Status status = apply_log_flags(options->config); !status.ok()) return fail(status);
  if (Status status = fetch_checkpoint(hub::FileSet::kAll, &options->config.model); !status.ok()) {
    return fail(status);
  }
  const Result<CheckpointReport> report = report_checkpoint(options->config.model.model);
  if (!report.ok()) return fail(report.status());
  const std::string text = options->json ? to_line(report_json(*report, options->tensors))
                                         : report_text(*report, options->tensors);
  if (!write_out(text)) return end_of_output();
  const Status loadable = report->loadable();
  return loadable.ok() ? kExitOk : fail(loadable);
}

}  // namespace

Command make_inspect_command() {
  const auto options = std::make_shared<InspectOptions>();
  Command command;
  command.name = "inspect";
  command.arguments = "CHECKPOINT";
  command.summary = "what a checkpoint holds, and whether every tensor has its place";
  command.description = kInspectDescription;
  command.options = {
      switch_option("--tensors", "Output", "Also list every tensor.", &options->tensors),
      switch_option("--json", "Output", "One JSON object.", &options->json)};
  for (Option& option : engine_flags(kCommandInspect, &options->config)) {
    command.options.push_back(std::move(option));
  }
  command.run = [options](const std::vector<std::string>& arguments) {
    return run_inspect(options.get(), arguments);
  };
  return command;
}

}  // namespace atom::cli
