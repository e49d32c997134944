// The post-processor of a tokenizer.json: the special ids around an encoded text. Immutable.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace atom {

class PostProcessor {
 public:
  // `component` may be null. Unknown kinds are errors that name the supported ones.
  static Result<PostProcessor> parse(const Json& component, std::string_view where);

  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 private:
  Status add(const Json& component, std::string_view where);
  Status add_template(const Json& component, std::string_view where);
  std::vector<int32_t> prefix_, suffix_;
};

}  // namespace atom
