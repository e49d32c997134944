// What one chat template may cost. A template comes with a checkpoint and the conversation from a
// client, so both are hostile: everything a template can do is bounded by these numbers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace atom {

struct ChatTemplateLimits {
  size_t max_template_size = size_t{1} << 20;  // bytes of source
  uint64_t max_steps = 50'000'000;            // nodes evaluated, items visited, 64-byte text copies
  std::chrono::milliseconds max_time{1000};   // of the rendering thread's CPU
  size_t max_output_size = size_t{16} << 20;  // bytes of the rendered prompt
  size_t max_memory = size_t{64} << 20;       // live bytes of values the template created
  int max_depth = 1500;                       // nested evaluations, macro calls included
};

namespace jinja {

inline constexpr int kMaxSyntaxDepth = 200;   // height of a syntax tree
inline constexpr int kMaxValueDepth = 100;    // lists and dicts inside each other
inline constexpr size_t kMaxRange = 100'000;  // items of range(), as the sandbox of transformers

}  // namespace jinja
}  // namespace atom
