#include "structured_output/grammar_compiler.h"

#include <list>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "structured_output/xgrammar_objects.h"
#include "tokenizer/tokenizer.h"

namespace atom {

// XGrammar's own cache is off: it also shares rules between grammars, and then fails at patterns of
// more than 128 repetitions. With several threads of its own, its exceptions would end the process.
struct GrammarCompiler::Impl {
  struct Entry {
    std::string text;
    std::shared_ptr<const CompiledGrammar> grammar;
  };

  explicit Impl(const xgrammar::TokenizerInfo& tokenizer)
      : compiler(tokenizer, /*max_threads=*/1, /*cache_enabled=*/false) {}

  std::shared_ptr<const CompiledGrammar> find(const std::string& text);
  void add(const std::string& text, const std::shared_ptr<const CompiledGrammar>& grammar);

  xgrammar::GrammarCompiler compiler;
  Mutex mutex;
  std::list<Entry> entries GUARDED_BY(mutex);  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index GUARDED_BY(mutex);
  size_t num_bytes GUARDED_BY(mutex) = 0;
};

std::shared_ptr<const CompiledGrammar> GrammarCompiler::Impl::find(const std::string& text) {
  const MutexLock lock(&mutex);
  const auto found = index.find(text);
  if (found == index.end()) return nullptr;
  entries.splice(entries.begin(), entries, found->second);
  return found->second->grammar;
}

void GrammarCompiler::Impl::add(const std::string& text,
                                const std::shared_ptr<const CompiledGrammar>& grammar) {
  const MutexLock lock(&mutex);
  if (index.contains(text)) return;  // compiled by two threads at once
  entries.push_front({text, grammar});
  index.emplace(entries.front().text, entries.begin());
  num_bytes += text.size() + grammar->num_bytes();
  while (num_bytes > kCacheBytes && entries.size() > 1) {
    const Entry& last = entries.back();
    num_bytes -= last.text.size() + last.grammar->num_bytes();
    index.erase(last.text);
    entries.pop_back();
  }
}

GrammarCompiler::GrammarCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrammarCompiler::~GrammarCompiler() = default;

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::create(
    const Tokenizer& tokenizer, int64_t vocab_size, std::span<const int32_t> end_token_ids) {
  std::vector<int32_t> ends;
  for (const int32_t id : end_token_ids) {
    if (id >= 0 && id < vocab_size) ends.push_back(id);
  }
  if (ends.empty()) {
    return unimplemented(
        "structured output: the model has no end token, by which an answer could end");
  }
  // A special token has no text: it comes only where a grammar names it.
  std::vector<std::string> vocabulary(static_cast<size_t>(vocab_size));
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!tokenizer.is_special(id)) vocabulary[id] = tokenizer.token_bytes(id);
  }
  std::unique_ptr<Impl> impl;
  RETURN_IF_ERROR(guarded([&] {
    impl = std::make_unique<Impl>(xgrammar::TokenizerInfo(
        vocabulary, xgrammar::VocabType::RAW, static_cast<int>(vocab_size), ends));
  }));
  return std::unique_ptr<GrammarCompiler>(new GrammarCompiler(std::move(impl)));
}

std::shared_ptr<const CompiledGrammar> GrammarCompiler::find(const std::string& structural_tag) {
  return impl_->find(structural_tag);
}

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::compile(
    const std::string& structural_tag) {
  std::shared_ptr<const CompiledGrammar> compiled = impl_->find(structural_tag);
  if (compiled != nullptr) return compiled;
  RETURN_IF_ERROR(guarded([&] {
    compiled = std::make_shared<const CompiledGrammar>(std::make_unique<CompiledGrammar::Impl>(
        CompiledGrammar::Impl{impl_->compiler.CompileStructuralTag(structural_tag)}));
  }));
  if (compiled->num_bytes() > kMaxCompiledBytes) {
    return resource_exhausted("the compiled grammar has {} MiB; expected at most {}",
                              compiled->num_bytes() >> 20,
                              kMaxCompiledBytes >> 20);
  }
  impl_->add(structural_tag, compiled);
  return compiled;
}

}  // namespace atom
