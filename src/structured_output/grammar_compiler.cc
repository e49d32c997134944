#include "structured_output/grammar_compiler.h"

#include <utility>
#include <vector>

#include "structured_output/xgrammar_objects.h"
#include "tokenizer/tokenizer.h"

namespace atom {

struct GrammarCompiler::Impl {
  explicit Impl(const xgrammar::TokenizerInfo& tokenizer)
      : compiler(tokenizer, /*max_threads=*/1, /*cache_enabled=*/true, int64_t{kCacheBytes}) {}

  xgrammar::GrammarCompiler compiler;
};

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

Result<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::compile(
    const std::string& structural_tag) {
  std::shared_ptr<const CompiledGrammar> compiled;
  RETURN_IF_ERROR(guarded([&] {
    compiled = std::make_shared<const CompiledGrammar>(std::make_unique<CompiledGrammar::Impl>(
        CompiledGrammar::Impl{impl_->compiler.CompileStructuralTag(structural_tag)}));
  }));
  if (compiled->num_bytes() > kMaxCompiledBytes) {
    return resource_exhausted("the compiled grammar has {} MiB; expected at most {}",
                              compiled->num_bytes() >> 20,
                              kMaxCompiledBytes >> 20);
  }
  return compiled;
}

}  // namespace atom
