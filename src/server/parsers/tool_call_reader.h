// Reads what a family writes between the marker that opens its tool calls and their end. Made once
// per answer and started again for every such section.
//
// The rules on broken calls, for every family:
// - A call begins when its name is known and its arguments have begun. Text that does not come so
//   far is given back and stays what it would have been without the marker.
// - Arguments written as JSON are passed on as they are written. If they turn out to be wrong JSON,
//   the rest of them up to the call's end marker is passed on as it stands too: the client gets
//   exactly what the model wrote.
// - A call that is cut off keeps the arguments that came; nothing is closed for the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/parsers/delta_writer.h"

namespace atom::server {

class ToolCallReader {
 public:
  enum class Status : uint8_t {
    kReading,
    kDone,      // the section is over
    kRejected,  // so is this, and take_undecided() is not part of any call
  };

  virtual ~ToolCallReader() = default;

  // A section begins with `marker`.
  virtual void start(std::string_view marker) = 0;
  // Takes text until the status is not kReading and returns how many bytes; what is left over is at
  // most the beginning of a marker, and nothing when the text is `final`, unless the status
  // changed.
  virtual size_t read(std::string_view text, bool final, DeltaWriter& out) = 0;
  // The answer ends within the section. The status afterwards is not kReading.
  virtual void finish(DeltaWriter& out) = 0;

  Status status() const { return status_; }
  // The section ended without its end marker, which may still come.
  bool left_early() const { return left_early_; }
  std::string take_undecided() {
    std::string text;
    text.swap(undecided_);
    return text;
  }

 protected:
  void begin_section() {
    status_ = Status::kReading;
    left_early_ = false;
    undecided_.clear();
  }
  void done() { status_ = Status::kDone; }
  void leave_early() {
    status_ = Status::kDone;
    left_early_ = true;
  }
  void reject() { status_ = Status::kRejected; }

  // read() of a reader that goes in steps. `state` is the reader's own; `step(text)` takes a part
  // of the text and says how much, and with 0 and the same state that it needs more of it.
  template <typename State, typename Step>
  size_t read_steps(std::string_view text, bool final, const State& state, Step step) {
    size_t used = 0;
    while (used < text.size() && status_ == Status::kReading) {
      const State before = state;
      size_t taken = step(text.substr(used));
      if (taken == 0 && before == state && status_ == Status::kReading) {
        if (!final) break;
        // The text ends within a marker: part of what is undecided, or of a call that is over or
        // cut off.
        taken = text.size() - used;
        if (!undecided_.empty()) undecided_.append(text.substr(used));
      }
      used += taken;
    }
    return used;
  }

  std::string undecided_;  // since the marker or the last call, while it may still be no call

 private:
  Status status_ = Status::kDone;
  bool left_early_ = false;
};

// Names written outside of JSON: no white space, quotes, braces or angle brackets.
inline bool is_name_byte(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != '<' && c != '>' && c != '{' && c != '}' &&
         c != '"' && c != '\x7F';
}

}  // namespace atom::server
