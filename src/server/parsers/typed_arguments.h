// Makes the JSON object of a call whose arguments come as keys and bare values. Strings are given
// out as they come; a value of another type when it is complete.
#pragma once

#include <string>
#include <string_view>

#include "server/parsers/delta_writer.h"
#include "server/parsers/tool_types.h"

namespace atom::server {

class TypedArguments {
 public:
  // With `trim_newlines` one newline at each end of a value is not part of it.
  explicit TypedArguments(bool trim_newlines) : trim_newlines_(trim_newlines) {}

  void begin_call() { num_values_ = 0; }
  void begin_value(std::string_view key, JsonTypes types, DeltaWriter& out);
  void value(std::string_view text, DeltaWriter& out);
  void end_value(DeltaWriter& out);
  void end_call(DeltaWriter& out) { out.arguments(num_values_ == 0 ? "{}" : "}"); }
  // The answer ends within a value: gives out what was held back of it.
  void cut_value(DeltaWriter& out);

 private:
  void give_out(std::string_view text, DeltaWriter& out);

  const bool trim_newlines_;
  size_t num_values_ = 0;
  JsonTypes types_ = 0;
  bool at_begin_ = true;       // no byte of the value has come
  bool held_newline_ = false;  // the last byte, which may be the one in front of the end
  std::string buffer_;         // of a value that is given out when complete
};

}  // namespace atom::server
