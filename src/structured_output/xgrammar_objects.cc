#include "structured_output/xgrammar_objects.h"

#include <stdexcept>
#include <utility>

namespace atom {
namespace {

thread_local XGrammarWarnings* collecting = nullptr;

}  // namespace

XGrammarWarnings::XGrammarWarnings() {
  collecting = this;
}

XGrammarWarnings::~XGrammarWarnings() {
  collecting = nullptr;
}

void XGrammarWarnings::add(const std::string& message) {
  if (!first_) first_ = message;
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;

size_t CompiledGrammar::num_bytes() const {
  return impl_->grammar.MemorySizeBytes();
}

}  // namespace atom

// What XGrammar is built to call (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;
  if (level == kWarning && atom::collecting != nullptr) atom::collecting->add(message);
}

}  // namespace xgrammar
