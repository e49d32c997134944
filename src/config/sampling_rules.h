// What a sampling parameter may hold. Each rule checks a value; servers and command lines overload
// on the rules to read one. An error names the field, its value and the range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace atom {

// Who may set a parameter by its name.
inline constexpr unsigned kTakenByNobody = 0;  // the program alone
inline constexpr unsigned kTakenByRequests = 1;
inline constexpr unsigned kTakenByGenerate = 2;
inline constexpr unsigned kTakenByCommands = 4 | kTakenByGenerate;  // generate and chat
inline constexpr unsigned kTakenByCheckpoints = 8;                  // generation_config.json

// Token ids with what is added to their logits.
using LogitBias = std::vector<std::pair<int32_t, float>>;

// [min, max], or (min, max]. NaN is outside.
struct NumberRange {
  float min;
  float max;
  bool excludes_min = false;
  bool contains(float value) const {
    return (excludes_min ? value > min : value >= min) && value <= max;
  }
  std::string text() const;  // "[0, 1]"
  Status check(const char* field, float value, int64_t vocab_size) const;
};

struct IntegerRange {
  int32_t min;
  int32_t max;
  std::string text() const;
  Status check(const char* field, int32_t value, int64_t vocab_size) const;
  Status check(const char* field, const std::optional<int32_t>& value, int64_t vocab_size) const;
};

struct AnyBool {
  Status check(const char*, bool, int64_t) const { return {}; }
};

struct AnySeed {
  Status check(const char*, const std::optional<uint64_t>&, int64_t) const { return {}; }
};

// Characters are what requests count, of at most four bytes each.
struct Text {
  static constexpr size_t kMaxOwnBytes = 64;  // that the program may add

  size_t max_characters;
  Status check(const char* field, const std::string& value, int64_t vocab_size) const;
};

// None is empty.
struct TextList {
  size_t max_count;
  size_t max_characters;
  Status check(const char* field, const std::vector<std::string>& values, int64_t vocab_size) const;
};

struct TokenIdList {
  size_t max_count;
  Status check(const char* field, const std::vector<int32_t>& ids, int64_t vocab_size) const;
};

// None is empty.
struct TokenSequences {
  size_t max_count;
  size_t max_length;
  Status check(const char* field,
               const std::vector<std::vector<int32_t>>& sequences,
               int64_t vocab_size) const;
};

struct TokenBiases {
  size_t max_count;
  float max_bias;  // [-max_bias, max_bias]
  Status check(const char* field, const LogitBias& biases, int64_t vocab_size) const;
};

}  // namespace atom
