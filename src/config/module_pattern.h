// One entry of a list of modules in a quantization config: which layers it means. The tools that
// write such lists match them by different rules; this one follows all of them that are in use.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace atom {

class ModulePattern {
 public:
  // "Linear" means every linear layer. With "re:" before it, a regular expression that matches from
  // the start of the name. With '*' or '?' in it, a glob for the whole name. Else the whole name,
  // or whole components at its begin or end: "lm_head", "model.layers.3", "mlp.gate". An error when
  // the expression is malformed, too long, or counts repetitions ("a{3}").
  static Result<ModulePattern> parse(std::string text);

  bool matches(std::string_view module) const;
  const std::string& text() const { return text_; }

 private:
  struct Expression;

  std::string text_;
  std::shared_ptr<const Expression> expression_;  // null unless "re:"
};

std::vector<ModulePattern> every_linear();

// Linears that a list of exceptions may leave out, because nobody quantizes them: the head, and
// those that choose experts or scale them.
std::vector<ModulePattern> never_quantized();

}  // namespace atom
