// atom inspect: what a checkpoint is, and whether every tensor of it will be used.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/inspection.h"
#include "cli/json_output.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "cli/table.h"
#include "config/flags.h"

namespace atom::cli {
namespace {

constexpr const char* kDescription =
    "Says what a checkpoint is, reading headers only, and ends with the account of its tensors: "
    "exit code 1 when the architecture is not supported, a parameter has no tensor, or a tensor is "
    "neither used nor ignored by a rule.";

struct InspectOptions {
  EngineConfig config;
  bool tensors = false;
  bool json = false;
};

// Where a tensor goes, or why it does not.
std::string destination(const TensorAccount& account) {
  switch (account.fate) {
    case TensorAccount::Fate::kLoaded:
      return account.slice_id.empty() ? account.parameter
                                      : account.parameter + " / " + account.slice_id;
    case TensorAccount::Fate::kUnclaimed:
      return fate_name(account.fate);
    default:
      return fmt::format("{} ({})", fate_name(account.fate), account.reason);
  }
}

std::string model_rows(const Inspection& inspection) {
  Table table({{"", Table::Align::kLeft}, {"", Table::Align::kLeft}});
  const bool known = inspection.config.has_value();
  table.add_row(
      {"architecture", inspection.architecture + (known ? " (supported)" : " (not supported)")});
  if (known) {
    const ModelConfig& config = *inspection.config;
    table.add_row({"layers", fmt::format("{}", config.num_hidden_layers)});
    table.add_row(
        {"hidden size",
         fmt::format("{}, feed-forward {}", config.hidden_size, config.intermediate_size)});
    table.add_row({"attention",
                   fmt::format("{} heads of {}, {} for keys and values",
                               config.num_attention_heads,
                               config.head_dim,
                               config.num_key_value_heads)});
    table.add_row({"vocabulary", fmt::format("{}", config.vocab_size)});
    table.add_row({"context", fmt::format("{} tokens", max_supported_model_len(config))});
  }
  if (inspection.checkpoint != nullptr) {
    const auto elements = static_cast<double>(inspection.num_elements());
    table.add_row({"parameters", human_count(elements)});
    std::string types;
    for (const auto& [name, bytes] : inspection.bytes_by_dtype()) {
      types += fmt::format(
          "{}{} {}", types.empty() ? "" : ", ", name, human_bytes(static_cast<int64_t>(bytes)));
    }
    table.add_row(
        {"tensors", fmt::format("{}: {}", inspection.checkpoint->tensors().size(), types)});
    for (const CheckpointFile& file : inspection.checkpoint->files()) {
      table.add_row(
          {"file", fmt::format("{}, {}", file.path, human_bytes(static_cast<int64_t>(file.size)))});
    }
  }
  table.add_row({"tokenizer", inspection.tokenizer});
  table.add_row({"chat template", inspection.chat_template});
  return table.to_string();
}

std::string tensor_rows(const Inspection& inspection) {
  Table table({{"tensor", Table::Align::kLeft},
               {"dtype", Table::Align::kLeft},
               {"shape", Table::Align::kLeft},
               {"bytes", Table::Align::kRight},
               {"goes to", Table::Align::kLeft}});
  const std::vector<CheckpointTensor>& tensors = inspection.checkpoint->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    table.add_row({info.name,
                   info.dtype_name,
                   info.shape.to_string(),
                   fmt::format("{}", info.num_bytes),
                   inspection.account ? destination(inspection.account->tensors[i]) : "unknown"});
  }
  return table.to_string();
}

std::string account_line(const LoadAccount& account) {
  return fmt::format("account: {} tensors loaded ({}), {} ignored{}\n",
                     account.num_loaded,
                     human_bytes(static_cast<int64_t>(account.loaded_bytes)),
                     account.num_ignored,
                     account.complete() ? ", every parameter filled" : "");
}

std::string inspection_text(const Inspection& inspection, bool tensors) {
  std::string text = model_rows(inspection);
  if (tensors && inspection.checkpoint != nullptr) text += "\n" + tensor_rows(inspection);
  if (inspection.account) text += "\n" + account_line(*inspection.account);
  return text;
}

OrderedJson config_json(const ModelConfig& config) {
  return {{"num_hidden_layers", config.num_hidden_layers},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_attention_heads", config.num_attention_heads},
          {"num_key_value_heads", config.num_key_value_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_model_len", max_supported_model_len(config)}};
}

OrderedJson tensors_json(const Inspection& inspection) {
  OrderedJson list = OrderedJson::array();
  const std::vector<CheckpointTensor>& tensors = inspection.checkpoint->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    OrderedJson entry = {{"name", info.name},
                         {"dtype", info.dtype_name},
                         {"shape", std::vector<int64_t>(info.shape.begin(), info.shape.end())},
                         {"bytes", info.num_bytes}};
    if (inspection.account) {
      const TensorAccount& account = inspection.account->tensors[i];
      entry["fate"] = fate_name(account.fate);
      if (!account.parameter.empty()) entry["parameter"] = account.parameter;
      if (!account.slice_id.empty()) entry["slice"] = account.slice_id;
      if (!account.reason.empty()) entry["reason"] = account.reason;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

OrderedJson inspection_json(const Inspection& inspection, bool tensors) {
  const Status complete = inspection.complete();
  OrderedJson json = {{"architecture", inspection.architecture},
                      {"supported", inspection.supported.ok()},
                      {"complete", complete.ok()}};
  if (!complete.ok()) json["error"] = complete.message();
  if (inspection.config) json["config"] = config_json(*inspection.config);
  if (inspection.checkpoint != nullptr) {
    json["num_parameters"] = inspection.num_elements();
    json["num_tensors"] = inspection.checkpoint->tensors().size();
    json["bytes"] = inspection.checkpoint->num_bytes();
    json["bytes_by_dtype"] = inspection.bytes_by_dtype();
    OrderedJson& files = json["files"] = OrderedJson::array();
    for (const CheckpointFile& file : inspection.checkpoint->files()) {
      files.push_back({{"path", file.path}, {"bytes", file.size}});
    }
    if (tensors) json["tensors"] = tensors_json(inspection);
  }
  json["tokenizer"] = inspection.tokenizer;
  json["chat_template"] = inspection.chat_template;
  if (inspection.account) {
    json["account"] = {{"num_loaded", inspection.account->num_loaded},
                       {"num_ignored", inspection.account->num_ignored},
                       {"loaded_bytes", inspection.account->loaded_bytes},
                       {"missing_parameters", inspection.account->missing_parameters}};
  }
  return json;
}

int run_inspect(InspectOptions* options, std::vector<std::string> arguments) {
  if (Status status = take_checkpoint(&arguments, &options->config); !status.ok()) {
    return fail_usage("inspect", status);
  }
  if (Status status = refuse_arguments(arguments); !status.ok()) {
    return fail_usage("inspect", status);
  }
  if (Status status = apply_log_level(options->config); !status.ok()) return fail(status);
  const Result<Inspection> inspection = inspect(options->config.model.model);
  if (!inspection.ok()) return fail(inspection.status());
  const std::string text = options->json ? to_line(inspection_json(*inspection, options->tensors))
                                         : inspection_text(*inspection, options->tensors);
  if (!write_out(text)) return end_of_output();
  const Status complete = inspection->complete();
  return complete.ok() ? kExitOk : fail(complete);
}

}  // namespace

Command make_inspect_command() {
  const auto options = std::make_shared<InspectOptions>();
  Command command;
  command.name = "inspect";
  command.arguments = "CHECKPOINT";
  command.summary = "what a checkpoint is, and whether every tensor will be used";
  command.description = kDescription;
  command.options = {
      switch_option(
          "--tensors", "Output", "List every tensor and where it goes.", &options->tensors),
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
