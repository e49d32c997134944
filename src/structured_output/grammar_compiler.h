// From what an answer has to be to the tokens that it may have, for one vocabulary. What it has to
// be is written as one of XGrammar's structural tags, a JSON text: schemas, expressions, grammars
// and tool calls are all formats of it. Compiled grammars are cached, the least recently used are
// dropped. Any thread, several at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "structured_output/compiled_grammar.h"

namespace atom {

class Tokenizer;

class GrammarCompiler {
 public:
  static constexpr size_t kCacheBytes = size_t{256} << 20;
  static constexpr size_t kMaxCompiledBytes = size_t{128} << 20;

  // `vocab_size`: ids below it may come; `end_token_ids` end an answer where the grammar allows its
  // end. The tokenizer is read during the call only.
  static Result<std::unique_ptr<GrammarCompiler>> create(const Tokenizer& tokenizer,
                                                         int64_t vocab_size,
                                                         std::span<const int32_t> end_token_ids);
  ~GrammarCompiler();

  // May take seconds. kInvalidArgument when XGrammar does not take it, kResourceExhausted when the
  // result is too large.
  Result<std::shared_ptr<const CompiledGrammar>> compile(const std::string& structural_tag);

  // What compile() gave, if it is still cached; else null. Does not wait for a compilation.
  std::shared_ptr<const CompiledGrammar> find(const std::string& structural_tag);

 private:
  struct Impl;
  explicit GrammarCompiler(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace atom
