// Where the tests and benchmarks find tokenizers and golden texts that live beside the repository,
// and texts and tokenizers that they make themselves.
#pragma once

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/test_folders.h"
#include "tokenizer/byte_level.h"

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

// A lexicon of English function words and of made-up longer words.
inline std::vector<std::string> make_lexicon(size_t size) {
  std::vector<std::string> words = {
      "the",   "of",      "and",   "to",    "a",    "in",    "that",  "is",    "was",   "he",
      "for",   "it",      "with",  "as",    "his",  "on",    "be",    "at",    "by",    "I",
      "this",  "had",     "not",   "are",   "but",  "from",  "or",    "have",  "an",    "they",
      "which", "one",     "you",   "were",  "her",  "all",   "she",   "there", "would", "their",
      "we",    "him",     "been",  "has",   "when", "who",   "will",  "more",  "no",    "if",
      "out",   "so",      "said",  "what",  "up",   "its",   "about", "into",  "than",  "them",
      "can",   "only",    "other", "new",   "some", "could", "time",  "these", "two",   "may",
      "then",  "do",      "first", "any",   "my",   "now",   "such",  "like",  "our",   "over",
      "man",   "me",      "even",  "most",  "made", "after", "also",  "did",   "many",  "before",
      "must",  "through", "years", "where", "much", "your",  "way",   "well",  "down",  "should"};
  const char* const syllables[] = {"con", "ver", "ta",  "tion", "ment", "pre", "sub", "lic",
                                   "en",  "ded", "ing", "er",   "ly",   "re",  "dis", "tri",
                                   "bu",  "ble", "gen", "al",   "per",  "mis", "so",  "work"};
  std::mt19937 random(11);
  while (words.size() < size) {
    std::string word;
    const size_t num_syllables = 2 + random() % 3;
    for (size_t i = 0; i < num_syllables; ++i) word += syllables[random() % 24];
    words.push_back(word);
  }
  return words;
}

// English-like prose: the frequency of a word falls with its place in the lexicon.
inline std::string make_prose(size_t num_bytes) {
  const std::vector<std::string> lexicon = make_lexicon(12000);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::string text;
  bool sentence_start = true;
  while (text.size() < num_bytes) {
    // Zipf's law by inversion: place k with probability about 1 / k.
    const double place = std::exp(uniform(random) * std::log(static_cast<double>(lexicon.size())));
    std::string word = lexicon[static_cast<size_t>(place) - 1];
    if (sentence_start) word[0] = static_cast<char>(std::toupper(word[0]));
    text += word;
    const uint32_t what = random() % 100;
    sentence_start = what < 6;
    if (what < 4) {
      text += ". ";
    } else if (what < 6) {
      text += ".\n\n";
    } else if (what < 13) {
      text += ", ";
    } else if (what < 14) {
      text += "'s ";
    } else if (what < 15) {
      text.append(" (").append(std::to_string(random() % 2000)).append(") ");
    } else if (what < 22) {
      text += "\n";
    } else {
      text += ' ';
    }
  }
  text.resize(num_bytes);
  return text;
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
