#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/bpe_model.h"
#include "tokenizer/json_cursor.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/unicode.h"

namespace atom {

namespace {

constexpr size_t kMaxMerges = 16 << 20;

// The small parts of the document by key, as raw JSON.
using RawFields = std::map<std::string, std::string_view, std::less<>>;

struct RawModel {
  RawFields fields;  // all but vocab and merges
  std::optional<Vocabulary> vocabulary;
  std::optional<std::vector<MergeTable::Merge>> merges;
  std::string_view raw_merges;  // of a file that lists them before the vocabulary
};

// The JSON of a field; null when it is absent.
Result<Json> parse_field(const RawFields& fields, const char* key, const std::string& where) {
  const auto it = fields.find(key);
  if (it == fields.end()) return Json(nullptr);
  return parse_json(it->second, where + ": " + key);
}

bool skip_field(JsonCursor* cursor, std::string_view key, RawFields* fields) {
  std::string name(key);  // the key does not outlive the reading of the value
  std::string_view raw;
  if (!cursor->skip_value(&raw)) return false;
  if (!fields->emplace(std::move(name), raw).second) {
    return cursor->fail("a key is given twice in one object");
  }
  return true;
}

bool read_vocabulary(JsonCursor* cursor, size_t size_hint, Vocabulary* vocabulary) {
  if (cursor->peek() != '{') return cursor->fail("model.vocab must be an object of token: id");
  cursor->begin_object();
  // An entry and its merge take 40 bytes or more, of which the token is a small part.
  vocabulary->reserve(size_hint / 40, size_hint / 5);
  std::string token;
  std::string_view key;
  while (cursor->next_key(&key)) {
    int64_t id;
    token.assign(key);
    if (!cursor->read_integer(&id)) break;
    if (const Status status = vocabulary->add(token, id); !status.ok()) {
      return cursor->fail("model.vocab: " + status.message());
    }
  }
  return cursor->status().ok();
}

// The two sides of the merge at the cursor: "a b" or ["a", "b"].
bool read_merge_sides(JsonCursor* cursor, std::string* left, std::string* right) {
  std::string_view side;
  if (cursor->peek() == '"') {
    if (!cursor->read_string(&side)) return false;
    const size_t space = side.find(' ');
    if (space == std::string_view::npos || side.find(' ', space + 1) != std::string_view::npos) {
      return cursor->fail(
          fmt::format("the merge \"{}\" is not two tokens with one space between", side));
    }
    left->assign(side.substr(0, space));
    right->assign(side.substr(space + 1));
    return true;
  }
  if (cursor->peek() != '[') return cursor->fail("a merge must be \"a b\" or [\"a\", \"b\"]");
  cursor->begin_array();
  if (!cursor->next_element() || !cursor->read_string(&side)) {
    return cursor->fail("a merge must be \"a b\" or [\"a\", \"b\"]");
  }
  left->assign(side);
  if (!cursor->next_element() || !cursor->read_string(&side)) {
    return cursor->fail("a merge must be \"a b\" or [\"a\", \"b\"]");
  }
  right->assign(side);
  return cursor->expect(']');
}

bool read_merges(JsonCursor* cursor,
                 const Vocabulary& vocabulary,
                 std::vector<MergeTable::Merge>* merges) {
  if (cursor->peek() != '[') return cursor->fail("model.merges must be an array");
  cursor->begin_array();
  merges->reserve(vocabulary.num_entries());
  std::string left, right;
  while (cursor->next_element()) {
    if (!read_merge_sides(cursor, &left, &right)) return false;
    const int32_t left_id = vocabulary.find(left), right_id = vocabulary.find(right);
    const size_t left_size = left.size();
    left.append(right);
    const int32_t result = vocabulary.find(left);
    if (left_size == 0 || right.empty() || left_id < 0 || right_id < 0 || result < 0) {
      const std::string absent = left_id < 0    ? left.substr(0, left_size)
                                 : right_id < 0 ? right
                                                : left;
      return cursor->fail(fmt::format(
          "model.merges[{}]: the token \"{}\" is not in model.vocab", merges->size(), absent));
    }
    if (merges->size() >= kMaxMerges) {
      return cursor->fail(fmt::format("more than {} merges", kMaxMerges));
    }
    merges->push_back({left_id, right_id, result});
  }
  return cursor->status().ok();
}

bool read_model(JsonCursor* cursor, size_t document_size, RawModel* model) {
  if (cursor->peek() != '{') return cursor->fail("\"model\" must be an object");
  cursor->begin_object();
  std::string_view key;
  while (cursor->next_key(&key)) {
    if (key == "vocab" && cursor->peek() == '{') {
      if (model->vocabulary) return cursor->fail("model.vocab is given twice");
      if (!read_vocabulary(cursor, document_size, &model->vocabulary.emplace())) return false;
    } else if (key == "merges") {
      if (model->merges || !model->raw_merges.empty()) {
        return cursor->fail("model.merges is given twice");
      }
      if (model->vocabulary) {
        if (!read_merges(cursor, *model->vocabulary, &model->merges.emplace())) return false;
      } else if (!cursor->skip_value(&model->raw_merges)) {
        return false;
      }
    } else if (!skip_field(cursor, key, &model->fields)) {
      return false;
    }
  }
  return cursor->status().ok();
}

// A field of the model that must be absent, null, "" or 0.
Status require_unused(const Json& model, const char* key, const std::string& where) {
  const auto it = model.find(key);
  if (it == model.end() || it->is_null() || (it->is_string() && *it == "") ||
      (it->is_number() && *it == 0)) {
    return {};
  }
  return unimplemented("{}: model.{} is not supported, it must be null", where, key);
}

Result<std::unique_ptr<TextModel>> make_model(RawModel raw,
                                              bool byte_level,
                                              const std::string& where) {
  Json model = Json::object();
  for (const auto& [key, text] : raw.fields) {
    ASSIGN_OR_RETURN(model[key], parse_json(text, where + ": model." + key));
  }
  const std::string model_where = where + ": model";
  // Files written by old versions name no type for BPE.
  ASSIGN_OR_RETURN(const std::string type, optional_string(model, "type", "BPE", model_where));
  if (type != "BPE") {
    return unimplemented(
        "{}: the model type \"{}\" is not supported; supported is BPE", where, type);
  }
  if (!raw.vocabulary) {
    return invalid_argument("{}: model.vocab must be an object of token: id", where);
  }
  if (!raw.merges) {
    if (raw.raw_merges.empty()) return invalid_argument("{}: model.merges is missing", where);
    JsonCursor cursor(raw.raw_merges, where + ": model.merges");
    if (!read_merges(&cursor, *raw.vocabulary, &raw.merges.emplace())) return cursor.status();
  }
  RETURN_IF_ERROR(require_unused(model, "dropout", where));
  RETURN_IF_ERROR(require_unused(model, "continuing_subword_prefix", where));
  RETURN_IF_ERROR(require_unused(model, "end_of_word_suffix", where));
  BpeOptions options;
  options.byte_level = byte_level;
  ASSIGN_OR_RETURN(options.byte_fallback,
                   optional_bool(model, "byte_fallback", false, model_where));
  ASSIGN_OR_RETURN(options.ignore_merges,
                   optional_bool(model, "ignore_merges", false, model_where));
  ASSIGN_OR_RETURN(options.fuse_unk, optional_bool(model, "fuse_unk", false, model_where));
  ASSIGN_OR_RETURN(const std::string unk, optional_string(model, "unk_token", "", model_where));
  if (!unk.empty()) {
    options.unk_id = raw.vocabulary->find(unk);
    if (options.unk_id < 0) {
      return invalid_argument("{}: model.unk_token \"{}\" is not in model.vocab", where, unk);
    }
  }
  return std::unique_ptr<TextModel>(std::make_unique<BpeModel>(
      std::move(*raw.vocabulary), MergeTable(std::move(*raw.merges)), options));
}

Result<AddedToken> parse_added_token(const Json& entry, const std::string& where) {
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, required_string(entry, "content", where));
  ASSIGN_OR_RETURN(const int64_t id,
                   required_int(entry,
                                "id",
                                0,
                                kMaxVocabularySize - 1,
                                fmt::format("{} (\"{}\")", where, token.content)));
  token.id = static_cast<int32_t>(id);
  ASSIGN_OR_RETURN(token.single_word, optional_bool(entry, "single_word", false, where));
  ASSIGN_OR_RETURN(token.lstrip, optional_bool(entry, "lstrip", false, where));
  ASSIGN_OR_RETURN(token.rstrip, optional_bool(entry, "rstrip", false, where));
  ASSIGN_OR_RETURN(token.special, optional_bool(entry, "special", false, where));
  ASSIGN_OR_RETURN(token.normalized, optional_bool(entry, "normalized", !token.special, where));
  return token;
}

Result<std::vector<AddedToken>> parse_added_tokens(const Json& list, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) return invalid_argument("{}: added_tokens must be an array", where);
  size_t num_bytes = 0;
  for (const Json& entry : list) {
    const std::string entry_where = fmt::format("{}: added_tokens[{}]", where, tokens.size());
    ASSIGN_OR_RETURN(AddedToken token, parse_added_token(entry, entry_where));
    num_bytes += token.content.size();
    if (num_bytes > kMaxAddedTokenBytes) {
      return resource_exhausted(
          "{}: the added tokens have more than {} bytes together", where, kMaxAddedTokenBytes);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_json(std::string_view text, const std::string& where) {
  if (text.size() > kMaxTokenizerFileSize) {
    return resource_exhausted("{}: larger than {} bytes", where, kMaxTokenizerFileSize);
  }
  if (!is_valid_utf8(text)) return invalid_argument("{}: not valid UTF-8", where);
  JsonCursor cursor(text, where);
  RawFields fields;
  std::optional<RawModel> model;
  if (!cursor.begin_object()) return cursor.status();
  std::string_view key;
  while (cursor.next_key(&key)) {
    if (key == "model" && !model) {
      if (!read_model(&cursor, text.size(), &model.emplace())) return cursor.status();
    } else if (!skip_field(&cursor, key, &fields)) {
      return cursor.status();
    }
  }
  cursor.expect_end();
  RETURN_IF_ERROR(cursor.status());
  if (!model) return invalid_argument("{}: there is no \"model\"", where);

  ASSIGN_OR_RETURN(const Json added_tokens, parse_field(fields, "added_tokens", where));
  ASSIGN_OR_RETURN(const Json normalizer, parse_field(fields, "normalizer", where));
  ASSIGN_OR_RETURN(const Json pre_tokenizer, parse_field(fields, "pre_tokenizer", where));
  ASSIGN_OR_RETURN(const Json post_processor, parse_field(fields, "post_processor", where));
  ASSIGN_OR_RETURN(const Json decoder, parse_field(fields, "decoder", where));
  TokenizerParts parts;
  ASSIGN_OR_RETURN(parts.added_tokens, parse_added_tokens(added_tokens, where));
  ASSIGN_OR_RETURN(parts.normalizer, Normalizer::parse(normalizer, where + ": normalizer"));
  ASSIGN_OR_RETURN(parts.pre_tokenizer,
                   PreTokenizer::parse(pre_tokenizer, where + ": pre_tokenizer"));
  ASSIGN_OR_RETURN(parts.post_processor,
                   PostProcessor::parse(post_processor, where + ": post_processor"));
  ASSIGN_OR_RETURN(parts.decoder, Decoder::parse(decoder, where + ": decoder"));
  ASSIGN_OR_RETURN(parts.model,
                   make_model(std::move(*model), parts.pre_tokenizer.byte_level(), where));
  return parts;
}

}  // namespace atom
