// Collects what a parser has found, and keeps the rules on white space and ids. One per answer.
//
// White space: newlines at both ends of the reasoning and between it and the content are dropped.
// Where tools are in use, so is white space between content and calls; what may turn out to be such
// is held back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/parsers/output_parser.h"

namespace atom::server {

enum class CallIdStyle : uint8_t {
  kOpenAi,   // "call_" and 24 letters or digits
  kMistral,  // 9 letters or digits: its templates refuse others
};

class DeltaWriter {
 public:
  struct Style {
    bool trim_reasoning = false;  // newlines at its ends
    bool trim_content = false;    // white space next to calls
    CallIdStyle id_style = CallIdStyle::kOpenAi;
    uint64_t id_seed = 0;
  };

  explicit DeltaWriter(const Style& style) : style_(style), id_state_(style.id_seed) {}

  void reasoning(std::string_view text);
  // The reasoning is over: newlines that follow are dropped.
  void end_reasoning();
  void content(std::string_view text);
  // Without an id one is made. The arguments that follow are this call's.
  void begin_call(std::string_view name, std::string_view id = {});
  void arguments(std::string_view text);
  // The answer is complete: gives out white space that was held back.
  void finish();

  OutputDelta take();
  int32_t num_calls() const { return num_calls_; }

 private:
  // White space to be dropped before the next content.
  enum class Skip : uint8_t { kNothing, kNewlines, kSpace };

  std::string make_id();

  Style style_;
  uint64_t id_state_;
  OutputDelta delta_;
  int32_t num_calls_ = 0;
  Skip skip_ = Skip::kNothing;
  bool reasoning_begun_ = false;
  size_t held_newlines_ = 0;  // at the end of the reasoning so far
  std::string held_space_;    // at the end of the content so far
};

}  // namespace atom::server
