// Tokenizers out of the files of a checkpoint.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tiktoken_model.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"

namespace atom {

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                              std::string_view config_json) {
  const std::string where = "tokenizer.json";
  ASSIGN_OR_RETURN(TokenizerParts parts, parse_tokenizer_json(tokenizer_json, where));
  TokenizerConfig config;
  if (!config_json.empty()) {
    const std::string config_where = "tokenizer_config.json";
    ASSIGN_OR_RETURN(const Json json, parse_json(config_json, config_where));
    ASSIGN_OR_RETURN(config, parse_tokenizer_config(json, config_where));
  }
  return make(std::move(parts), std::move(config), where);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string& folder) {
  const std::string json_path = folder + "/tokenizer.json";
  const std::string model_path = folder + "/tokenizer.model";
  if (file_exists(json_path)) {
    ASSIGN_OR_RETURN(TokenizerConfig config, read_tokenizer_config(folder));
    ASSIGN_OR_RETURN(const std::string text, read_file(json_path, kMaxTokenizerFileSize));
    ASSIGN_OR_RETURN(TokenizerParts parts, parse_tokenizer_json(text, json_path));
    return make(std::move(parts), std::move(config), json_path);
  }
  if (const std::string path = folder + "/tiktoken.model"; file_exists(path)) {
    ASSIGN_OR_RETURN(TokenizerConfig config, read_tokenizer_config(folder));
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTokenizerFileSize));
    ASSIGN_OR_RETURN(TokenizerParts parts, parse_tiktoken_model(text, config, path));
    return make(std::move(parts), std::move(config), path);
  }
  if (!file_exists(model_path)) {
    return not_found(
        "{}: no tokenizer: neither tokenizer.json nor tiktoken.model nor tokenizer.model is there",
        folder);
  }
  ASSIGN_OR_RETURN(TokenizerConfig config, read_tokenizer_config(folder));
  ASSIGN_OR_RETURN(const std::string proto, read_file(model_path, kMaxTokenizerFileSize));
  ASSIGN_OR_RETURN(auto model, SentencePieceModel::load(proto, config.legacy, model_path));
  TokenizerParts parts;
  parts.added_tokens = model->added_tokens();
  parts.decoder = Decoder::sentencepiece(model->adds_leading_space());
  // What the model says counts where the configuration says nothing.
  for (const auto& [name, id] : {std::pair("bos_token", model->bos_id()),
                                 std::pair("eos_token", model->eos_id()),
                                 std::pair("unk_token", model->unk_id())}) {
    if (id >= 0) config.special_tokens.emplace(name, model->vocabulary().content(id));
  }
  config.add_bos_token = config.add_bos_token.value_or(true);
  parts.model = std::move(model);
  return make(std::move(parts), std::move(config), model_path);
}

}  // namespace atom
