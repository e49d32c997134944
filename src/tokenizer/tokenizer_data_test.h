// Where the tests and benchmarks find tokenizers and golden texts that live beside the repository,
// and texts and tokenizers that they make themselves.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/test_folders.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/made_text_test.h"

namespace atom {

// "" + relative when there is no shared folder: files are then not found.
inline std::string shared_path(const std::string& relative) {
  return shared_folder().value_or("") + "/" + relative;
}

inline const char* const kTokenizerFamilies[] = {
    "llama3", "qwen2", "qwen3.5", "o200k", "deepseek_v3", "llama2", "metaspace"};

inline std::string family_folder(const std::string& family) {
  return shared_path("text-fixtures/tokenizers/" + family);
}

inline std::string json_quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

// A byte-level tokenizer.json of the given vocabulary size with the pipeline of Qwen 2: merges that
// build the lexicon's words first, then random ones.
inline std::string make_large_tokenizer_json(size_t vocabulary_size) {
  std::vector<std::string> tokens;
  std::set<std::string> known;
  std::string merges;
  const auto add = [&](const std::string& token) {
    if (!known.insert(token).second) return false;
    tokens.push_back(token);
    return true;
  };
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    ByteLevelAlphabet::get().append_encoded(std::string(1, static_cast<char>(byte)), &token);
    add(token);
  }
  const auto add_merge = [&](const std::string& left, const std::string& right) {
    if (tokens.size() >= vocabulary_size || !add(left + right)) return;
    if (!merges.empty()) merges += ",\n      ";
    merges.append("[").append(json_quote(left)).append(",").append(json_quote(right)).append("]");
  };
  for (const std::string& word : make_lexicon(6000)) {
    for (size_t i = 1; i < word.size(); ++i) add_merge(word.substr(0, i), word.substr(i, 1));
    add_merge("Ġ", word);
  }
  std::mt19937 random(3);
  while (tokens.size() < vocabulary_size) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right = tokens[random() % tokens.size()];
    if (left.size() + right.size() < 24) add_merge(left, right);
  }
  std::string vocabulary;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (id > 0) vocabulary += ",\n      ";
    vocabulary += json_quote(tokens[id]) + ": " + std::to_string(id);
  }
  return R"({"version": "1.0", "added_tokens": [{"id": )" + std::to_string(vocabulary_size) +
         R"(, "content": "<|im_start|>", "single_word": false, "lstrip": false, "rstrip": false,
  "normalized": false, "special": true}], "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
         R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
  "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false,
  "trim_offsets": true, "use_regex": false}]}, "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
    "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": {
      )" +
         vocabulary + "},\n    \"merges\": [\n      " + merges + "]}}";
}

}  // namespace atom
