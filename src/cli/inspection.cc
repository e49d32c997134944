#include "cli/inspection.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "models/registry.h"
#include "runner/model_source.h"
#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/chat_template/find_chat_template.h"
#include "tokenizer/tokenizer.h"

namespace atom::cli {
namespace {

// "BPE (tokenizer.json)"
std::string tokenizer_kind(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  if (!file_exists(path)) return "SentencePiece (tokenizer.model)";
  const Result<Json> json = read_json_file(path);
  if (!json.ok() || !json->is_object()) return "tokenizer.json";
  const auto model = json->find("model");
  if (model == json->end() || !model->is_object()) return "tokenizer.json";
  const auto type = model->find("type");
  if (type == model->end() || !type->is_string()) return "tokenizer.json";
  return type->get<std::string>() + " (tokenizer.json)";
}

std::string describe_tokenizer(const std::string& folder) {
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return "none: " + tokenizer.status().message();
  return fmt::format("{}, {} tokens", tokenizer_kind(folder), (*tokenizer)->vocab_size());
}

std::string describe_chat_template(const std::string& folder) {
  const Result<ChatTemplateSource> source = find_chat_template(folder, /*with_tools=*/false);
  if (!source.ok()) return "none: " + source.status().message();
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source->text, source->origin);
  return parsed.ok() ? source->origin : "cannot be used: " + parsed.status().message();
}

// What the model makes of the tensors.
Result<LoadAccount> account_of(const std::string& folder,
                               const ModelConfig& config,
                               const Checkpoint& checkpoint) {
  EngineConfig engine;
  engine.model.model = folder;
  ASSIGN_OR_RETURN(const ResolvedConfig resolved, resolve(engine, config));
  ASSIGN_OR_RETURN(const BuiltModel built, build_model(resolved));
  return account_for(*built.model, checkpoint, built.model->weight_mapping());
}

}  // namespace

int64_t Inspection::num_elements() const {
  int64_t count = 0;
  if (checkpoint == nullptr) return count;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    count += tensor.info.shape.num_elements();
  }
  return count;
}

std::map<std::string, uint64_t> Inspection::bytes_by_dtype() const {
  std::map<std::string, uint64_t> bytes;
  if (checkpoint == nullptr) return bytes;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    bytes[tensor.info.dtype_name] += tensor.info.num_bytes;
  }
  return bytes;
}

Status Inspection::complete() const {
  RETURN_IF_ERROR(supported);
  RETURN_IF_ERROR(checkpoint_status);
  return account->status();
}

Result<Inspection> inspect(const std::string& folder) {
  ASSIGN_OR_RETURN(const Json json, read_config_json(folder));
  Inspection inspection;
  ASSIGN_OR_RETURN(inspection.architecture, architecture_of(json));
  inspection.supported = find_architecture(inspection.architecture).status();
  if (inspection.supported.ok()) {
    ASSIGN_OR_RETURN(inspection.config, load_model_config(folder));
  }
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  inspection.checkpoint_status = checkpoint.status();
  if (checkpoint.ok()) {
    inspection.checkpoint = std::make_unique<const Checkpoint>(*std::move(checkpoint));
  }
  if (inspection.config && inspection.checkpoint != nullptr) {
    Result<LoadAccount> account = account_of(folder, *inspection.config, *inspection.checkpoint);
    inspection.supported = account.status();
    if (account.ok()) inspection.account = *std::move(account);
  }
  inspection.tokenizer = describe_tokenizer(folder);
  inspection.chat_template = describe_chat_template(folder);
  return inspection;
}

const char* fate_name(TensorAccount::Fate fate) {
  switch (fate) {
    case TensorAccount::Fate::kLoaded:
      return "loaded";
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
