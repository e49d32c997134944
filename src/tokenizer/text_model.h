// What turns the pieces of a text into ids. Immutable and thread-safe; the workspace belongs to one
// call at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/regex.h"
#include "tokenizer/vocabulary.h"

namespace atom {

// What one encoding may cost.
struct EncodeLimits {
  size_t max_tokens = SIZE_MAX;
  const std::atomic<bool>* cancelled = nullptr;  // ends the encoding soon after it became true

  bool is_cancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

// Scratch memory of a model, kept between calls for its capacity, and the limits of this call.
struct ModelWorkspace {
  PieceCache cache;
  std::vector<int32_t> symbols;
  std::string text;
  EncodeLimits limits;
};

class TextModel {
 public:
  virtual ~TextModel() = default;
  // Appends the ids of the pieces of `valid_text`, none of which is empty; as many as it likes once
  // a limit of the workspace is passed. `at_start`: the text begins where the whole input does.
  virtual Status encode(std::string_view valid_text,
                        std::span<const TextSpan> pieces,
                        bool at_start,
                        ModelWorkspace* workspace,
                        std::vector<int32_t>* ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

}  // namespace atom
