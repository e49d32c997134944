// The name of a model on a hub: "Qwen/Qwen3-0.6B" or "Qwen/Qwen3-0.6B@v1.0".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom::hub {

struct ModelName {
  std::string name;      // "Qwen/Qwen3-0.6B"
  std::string revision;  // branch, tag or commit; empty: not said

  std::string to_string() const { return revision.empty() ? name : name + "@" + revision; }
};

// Nothing when `text` cannot be the name of a model.
std::optional<ModelName> parse_model_name(std::string_view text);

// What names a branch, tag or commit and can be a path below refs/: "main", "refs/pr/3".
bool is_revision(std::string_view text);

bool is_commit(std::string_view text);  // 40 lower-case hexadecimal digits

// `name` with the revision to take: its own or `revision`, else main. An error when they differ, or
// `revision` is none.
Result<ModelName> with_revision(ModelName name, const std::string& revision);

}  // namespace atom::hub
