// Inside attention: what comes next of the paged cache, a little at a time.
#pragma once

#include <stdint.h>

namespace atom::ops {

// Fetches `size` bytes, from `offset` on, of each of some tokens in the order of memory, a few
// cache lines at a time: a burst would hold up the loads behind it.
class TokenPrefetch {
 public:
  __attribute__((always_inline))
  TokenPrefetch(const char* const* tokens, int64_t num_tokens, int64_t offset, int64_t size)
      : tokens_(tokens), num_tokens_(num_tokens), offset_(offset), size_(size) {}

  __attribute__((always_inline)) void advance(int64_t num_bytes) {
    for (; num_bytes > 0; num_bytes -= 64, line_ += 64) {
      if (line_ >= end_) {
        if (token_ == num_tokens_ || tokens_[token_] == nullptr) return;
        line_ = tokens_[token_++] + offset_;
        end_ = line_ + size_;
      }
      __builtin_prefetch(line_, 0, 2);
    }
  }

 private:
  const char* const* tokens_;
  int64_t num_tokens_;
  int64_t offset_;
  int64_t size_;
  int64_t token_ = 0;
  const char* line_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace atom::ops
