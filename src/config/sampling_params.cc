#include "config/sampling_params.h"

namespace atom {

Status SamplingParams::validate(int64_t vocab_size) const {
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) \
  RETURN_IF_ERROR(rule.check(#name, name, vocab_size));
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
  return IntegerRange{0, max_tokens}.check("min_tokens", min_tokens, vocab_size);
}

}  // namespace atom
