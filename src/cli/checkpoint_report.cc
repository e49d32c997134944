#include "cli/checkpoint_report.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/registry.h"
#include "runner/model_source.h"
#include "tokenizer/chat_template/find_chat_template.h"

namespace atom::cli {
namespace {

std::string tokenizer_file(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tiktoken.model", "tokenizer.model"}) {
    if (file_exists(folder + "/" + name)) return name;
  }
  return "";
}

// Maps the tensors onto the parameters that the model would have.
Status account_for_model(const std::string& folder, CheckpointReport* report) {
  ASSIGN_OR_RETURN(report->config, load_model_config(folder));
  EngineConfig engine;
  engine.model.model = folder;
  ASSIGN_OR_RETURN(const ResolvedConfig config, resolve(engine, *report->config));
  ASSIGN_OR_RETURN(const BuiltModel built, build_model(config));
  report->account = account_for(*built.model, *report->checkpoint, built.model->weight_mapping());
  return {};
}

}  // namespace

Status CheckpointReport::loadable() const {
  RETURN_IF_ERROR(supported);
  return account->status();
}

Result<CheckpointReport> report_checkpoint(const std::string& folder) {
  CheckpointReport report;
  ASSIGN_OR_RETURN(const Json config, read_config_json(folder));
  ASSIGN_OR_RETURN(report.architecture, architecture_of(config));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(folder));
  report.checkpoint = std::make_unique<const Checkpoint>(std::move(checkpoint));
  for (const CheckpointTensor& tensor : report.checkpoint->tensors()) {
    report.num_parameters += tensor.info.shape.num_elements();
    ++report.num_dtypes[tensor.info.dtype_name];
  }
  report.tokenizer_file = tokenizer_file(folder);
  const Result<ChatTemplateSource> chat_template = find_chat_template(folder, /*with_tools=*/false);
  if (chat_template.ok()) report.chat_template = chat_template->origin;
  report.supported = account_for_model(folder, &report);
  return report;
}

const char* fate_name(TensorAccount::Fate fate) {
  switch (fate) {
    case TensorAccount::Fate::kLoaded:
      return "loaded";
    case TensorAccount::Fate::kOtherRank:
      return "other rank";
    case TensorAccount::Fate::kIgnored:
      return "ignored";
    case TensorAccount::Fate::kUnclaimed:
      return "UNCLAIMED";
    case TensorAccount::Fate::kRefused:
      return "REFUSED";
  }
  return "";
}

}  // namespace atom::cli
