// What the families share that write calls as the objects of CallObjectReader.
#pragma once

#include <optional>

#include "server/parsers/call_object_reader.h"
#include "server/parsers/tool_call_reader.h"

namespace atom::server {

class ObjectCallReader : public ToolCallReader {
 public:
  void finish(DeltaWriter& out) override;

 protected:
  // The next text is an object; `needs_arguments` as in CallObjectReader.
  void begin_object(bool needs_arguments = false) { object_.emplace(needs_arguments); }
  // Begins a section, with no object begun.
  void begin_section();
  // Reads on in the object and rejects the section with it. Its end is told to end_object().
  size_t read_object(std::string_view text, DeltaWriter& out);

 private:
  // `is_whole`: it was a call. Otherwise the rest of its arguments follows, whatever it is.
  virtual void end_object(bool is_whole) = 0;

  std::optional<CallObjectReader> object_;
};

}  // namespace atom::server
