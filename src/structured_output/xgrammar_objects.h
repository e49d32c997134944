// XGrammar's classes behind ours; for the sources of this folder alone. XGrammar reports errors by
// exceptions and warnings by its log: both become a Status here.
#pragma once

#include <xgrammar/xgrammar.h>

#include <exception>
#include <optional>
#include <string>

#include "base/status.h"
#include "structured_output/compiled_grammar.h"

namespace atom {

struct CompiledGrammar::Impl {
  xgrammar::CompiledGrammar grammar;
};

// Collects what XGrammar warns of on this thread while it lives. A warning says that a part of what
// was asked for will not be enforced. Not nested.
class XGrammarWarnings {
 public:
  XGrammarWarnings();
  ~XGrammarWarnings();
  XGrammarWarnings(const XGrammarWarnings&) = delete;
  XGrammarWarnings& operator=(const XGrammarWarnings&) = delete;

  void add(const std::string& message);
  const std::optional<std::string>& first() const { return first_; }

 private:
  std::optional<std::string> first_;
};

// Calls `body`, a function of XGrammar on what a client sent.
template <typename Body>
Status guarded(Body&& body) {
  XGrammarWarnings warnings;
  try {
    body();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no memory for it");
  } catch (const std::exception& error) {
    return invalid_argument("{}", error.what());
  }
  if (warnings.first()) return unimplemented("{}", *warnings.first());
  return {};
}

}  // namespace atom
