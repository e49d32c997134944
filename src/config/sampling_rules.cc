#include "config/sampling_rules.h"

namespace atom {
namespace {

constexpr size_t kMaxBytesPerCharacter = 4;

Status check_number(std::string_view field, float value, const NumberRange& range) {
  if (range.contains(value)) return {};
  return invalid_argument("{} is {}; expected a number in {}", field, value, range.text());
}

Status check_integer(std::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return invalid_argument("{} is {}; expected an integer in [{}, {}]", field, value, min, max);
}

Status check_count(const char* field, size_t count, size_t max) {
  if (count <= max) return {};
  return invalid_argument("{} has {} entries; expected at most {}", field, count, max);
}

}  // namespace

std::string NumberRange::text() const {
  return fmt::format("{}{:g}, {:g}]", excludes_min ? '(' : '[', min, max);
}

Status NumberRange::check(const char* field, float value, int64_t) const {
  return check_number(field, value, *this);
}

std::string IntegerRange::text() const {
  return fmt::format("[{}, {}]", min, max);
}

Status IntegerRange::check(const char* field, int32_t value, int64_t) const {
  return check_integer(field, value, min, max);
}

Status IntegerRange::check(const char* field, const std::optional<int32_t>& value, int64_t) const {
  return value ? check_integer(field, *value, min, max) : Status();
}

Status Text::check(const char* field, const std::string& value, int64_t) const {
  const size_t max_bytes = max_characters * kMaxBytesPerCharacter + kMaxOwnBytes;
  if (value.size() <= max_bytes) return {};
  return invalid_argument("{} has {} bytes; expected at most {}", field, value.size(), max_bytes);
}

Status TextList::check(const char* field, const std::vector<std::string>& values, int64_t) const {
  RETURN_IF_ERROR(check_count(field, values.size(), max_count));
  const size_t max_bytes = max_characters * kMaxBytesPerCharacter;
  for (const std::string& text : values) {
    if (text.empty()) return invalid_argument("{} contains an empty string", field);
    if (text.size() > max_bytes) {
      return invalid_argument(
          "{} contains a string of {} bytes; expected at most {}", field, text.size(), max_bytes);
    }
  }
  return {};
}

Status TokenIdList::check(const char* field,
                          const std::vector<int32_t>& ids,
                          int64_t vocab_size) const {
  RETURN_IF_ERROR(check_count(field, ids.size(), max_count));
  for (const int32_t id : ids) {
    RETURN_IF_ERROR(check_integer(fmt::format("a token id of {}", field), id, 0, vocab_size - 1));
  }
  return {};
}

Status TokenSequences::check(const char* field,
                             const std::vector<std::vector<int32_t>>& sequences,
                             int64_t vocab_size) const {
  RETURN_IF_ERROR(check_count(field, sequences.size(), max_count));
  for (const std::vector<int32_t>& ids : sequences) {
    if (ids.empty()) return invalid_argument("{} contains an empty sequence", field);
    RETURN_IF_ERROR(TokenIdList{max_length}.check(field, ids, vocab_size));
  }
  return {};
}

Status TokenBiases::check(const char* field, const LogitBias& biases, int64_t vocab_size) const {
  RETURN_IF_ERROR(check_count(field, biases.size(), max_count));
  for (const auto& [id, bias] : biases) {
    RETURN_IF_ERROR(check_integer(fmt::format("a token id of {}", field), id, 0, vocab_size - 1));
    RETURN_IF_ERROR(
        check_number(fmt::format("a bias of {}", field), bias, NumberRange{-max_bias, max_bias}));
  }
  return {};
}

}  // namespace atom
