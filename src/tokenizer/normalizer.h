// The normalizer of a tokenizer.json: a list of steps from text to text. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // False, with `out` untouched, when the text stays as it is.
  virtual Result<bool> apply(std::string_view valid_text, std::string* out) const = 0;
};

class Normalizer {
 public:
  // `component` may be null. Unknown kinds are errors that name the supported ones.
  static Result<Normalizer> parse(const Json& component, std::string_view where);

  bool empty() const { return steps_.empty(); }
  // The normalized text is at least a `max_shrink()`-th as long as the text; 0: any length.
  size_t max_shrink() const { return max_shrink_; }
  // The normalized text: `valid_text` itself, or `buffer`.
  Result<std::string_view> apply(std::string_view valid_text, std::string* buffer) const;

 private:
  Status add(const Json& component, std::string_view where);
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
  size_t max_shrink_ = 1;
};

}  // namespace atom
