// One call written as a JSON object: {"name": "f", "arguments": {...}}, with "parameters" as
// another word for "arguments", keys in any order and others ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/parsers/arguments_reader.h"
#include "server/parsers/delta_writer.h"
#include "server/parsers/json_scanner.h"

namespace atom::server {

// Text that is not known to be a call yet is kept up to this size; beyond, it is none. As large as
// an answer of a million tokens, which the engine keeps anyway.
constexpr size_t kMaxUndecidedSize = size_t{4} << 20;
constexpr size_t kMaxNameSize = 512;

class CallObjectReader {
 public:
  enum class Status : uint8_t {
    kOpen,
    kDone,      // the call is complete; what follows is not part of it
    kRejected,  // not a call: nothing was written, undecided() is its text so far
    kBroken,    // the call began, but its arguments cannot go on like this
  };

  // With `needs_arguments` an object without arguments is no call, otherwise it has none.
  explicit CallObjectReader(bool needs_arguments = false) : needs_arguments_(needs_arguments) {}

  // Takes bytes, from white space in front of the object on, until the status is not kOpen; the
  // byte that is wrong is not taken.
  size_t read(std::string_view text, DeltaWriter& out);

  Status status() const { return status_; }
  bool begun() const { return begun_; }
  const std::string& undecided() const { return undecided_; }

 private:
  enum class State : uint8_t {
    kOpenBrace,
    kFirstKey,
    kNextKey,
    kKey,
    kColon,
    kValue,
    kName,
    kArguments,
    kOther,
    kAfterValue,
  };

  size_t step(std::string_view text, DeltaWriter& out);
  bool take_structure(char c, DeltaWriter& out);
  size_t begin_value(char c);
  size_t read_name(std::string_view text, DeltaWriter& out);
  size_t read_arguments(std::string_view text, DeltaWriter& out);
  size_t read_other(std::string_view text);
  void end_object(DeltaWriter& out);
  void begin_call(DeltaWriter& out);
  void fail();

  const bool needs_arguments_;
  State state_ = State::kOpenBrace;
  Status status_ = Status::kOpen;
  bool begun_ = false;
  bool have_name_ = false;
  bool have_arguments_ = false;  // complete
  bool is_null_ = false;         // the value being skipped stands for no arguments
  std::string key_;
  std::string name_;
  std::string arguments_;  // not written yet
  std::string undecided_;
  JsonStringDecoder string_;
  JsonScanner other_;
  ArgumentsReader arguments_reader_;
};

}  // namespace atom::server
