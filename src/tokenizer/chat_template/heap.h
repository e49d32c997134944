// What one rendering has used and makes: the only place where values are created while a template
// runs, so the only place that enforces ChatTemplateLimits' steps, time and memory. One thread.
//
// Every function throws TemplateError when a limit is passed or the rendering is cancelled. Whoever
// reads, compares or copies something of a size that the template chooses pays for it first: what
// is not paid for is not bounded.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template/limits.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

class Heap {
 public:
  // `cancelled`, when there is one, ends the rendering soon after it has become true.
  explicit Heap(const ChatTemplateLimits& limits, const std::atomic<bool>* cancelled = nullptr);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const ChatTemplateLimits& limits() const { return limits_; }

  // Pays for `count` units of work; for text, one unit per 64 bytes.
  void step(uint64_t count = 1) {
    if (count > steps_until_look_) look_around(count);
    steps_until_look_ -= count;
  }
  void step_bytes(size_t bytes) { step(1 + bytes / 64); }
  // For text taken apart by code point, which takes some ten times as long as copying it.
  void step_characters(size_t bytes) { step(1 + bytes / 8); }

  // Fails now if `bytes` more cannot be had: before building something large.
  void require(size_t bytes) const;

  void take(size_t bytes);
  void release(size_t bytes) { bytes_live_ -= bytes; }

  Value string(std::string text);
  Value string(std::string_view text) { return string(std::string(text)); }
  Value sequence(SequenceKind kind, ValueList items);
  Value list(ValueList items) { return sequence(SequenceKind::kList, std::move(items)); }
  Value tuple(ValueList items) { return sequence(SequenceKind::kTuple, std::move(items)); }
  Value generator(ValueList items) { return sequence(SequenceKind::kGenerator, std::move(items)); }
  Value dict(std::vector<DictEntry> entries);  // keys distinct
  Value method(std::string_view name, NativeFunction native, Value self);
  Value macro(const MacroStatement& macro, std::string name, std::shared_ptr<Scope> closure);
  Value name_space();
  std::shared_ptr<Loop> loop(Items items);

 private:
  // Sees whether time is up or the rendering is cancelled, and makes room for `count` steps.
  void look_around(uint64_t count);
  [[noreturn]] void fail_memory() const;
  static void check_depth(int depth);

  const ChatTemplateLimits limits_;
  const std::atomic<bool>* const cancelled_;
  uint64_t steps_until_look_ = 0;
  uint64_t steps_behind_;                             // what is left beyond the next look
  std::optional<std::chrono::nanoseconds> deadline_;  // of the thread's CPU clock
  size_t bytes_live_ = 0;
  // A namespace and the scope of a macro can refer to themselves. They are kept until the end,
  // where they are emptied one by one: no leak, and no recursion along a chain of them.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> closures_;
};

}  // namespace atom::jinja
