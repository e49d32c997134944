// What one rendering has used and makes: the only place where values are created while a template
// runs, so the only place that enforces ChatTemplateLimits' steps and memory. One thread.
//
// Every function throws TemplateError when a limit is passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_template/limits.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

class Heap {
 public:
  explicit Heap(const ChatTemplateLimits& limits);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const ChatTemplateLimits& limits() const { return limits_; }

  // Pays for `count` units of work; for text, one unit per 64 bytes.
  void step(uint64_t count = 1) {
    if (count > steps_left_) fail_steps();
    steps_left_ -= count;
  }
  void step_bytes(size_t bytes) { step(1 + bytes / 64); }

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
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory() const;
  static void check_depth(int depth);

  const ChatTemplateLimits limits_;
  uint64_t steps_left_;
  size_t bytes_live_ = 0;
  // A namespace and the scope of a macro can refer to themselves. They are kept until the end,
  // where they are emptied one by one: no leak, and no recursion along a chain of them.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> closures_;
};

}  // namespace atom::jinja
