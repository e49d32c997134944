// What an answer has to be, compiled for one vocabulary. Immutable: sequences, and the ranks that
// compute them, share it. Threads share it, too.
#pragma once

#include <cstddef>
#include <memory>

namespace atom {

class CompiledGrammar {
 public:
  struct Impl;  // xgrammar_objects.h

  explicit CompiledGrammar(std::unique_ptr<const Impl> impl);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  size_t num_bytes() const;  // about
  const Impl& impl() const { return *impl_; }

 private:
  const std::unique_ptr<const Impl> impl_;
};

}  // namespace atom
