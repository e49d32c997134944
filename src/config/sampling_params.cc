#include "config/sampling_params.h"

namespace atom {
namespace {

// Whether a rule's check would find nothing, as far as that is seen at a glance: this is done for
// every request.
bool is_fine(const NumberRange& range, float value) {
  return range.contains(value);
}
bool is_fine(const IntegerRange& range, int32_t value) {
  return value >= range.min && value <= range.max;
}
template <typename Rule, typename T>
bool is_fine(const Rule&, const std::vector<T>& values) {
  return values.empty();
}
template <typename Rule>
bool is_fine(const Rule&, const std::string& text) {
  return text.empty();
}
template <typename Rule, typename T>
bool is_fine(const Rule&, const std::optional<T>& value) {
  return !value;
}
template <typename Rule>
bool is_fine(const Rule&, bool) {
  return true;
}

}  // namespace

Status SamplingParams::validate(int64_t vocab_size) const {
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) \
  if (!is_fine(rule, name)) RETURN_IF_ERROR(rule.check(#name, name, vocab_size));
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
  return IntegerRange{0, max_tokens}.check("min_tokens", min_tokens, vocab_size);
}

}  // namespace atom
