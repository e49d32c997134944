// The arguments of a call that the model writes as JSON: an object, passed on as it stands, or a
// string that holds the text of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/parsers/json_scanner.h"

namespace atom::server {

class ArgumentsReader {
 public:
  enum class Status : uint8_t {
    kOpen,
    kDone,
    kRejected,  // no arguments, and nothing was given out
    kBroken,    // something was given out, then came a byte that cannot be
  };

  // Takes bytes up to the end of the arguments or to the first that cannot be (not taken), and
  // appends to `out` what is certain to be the arguments' text. The first byte is no white space.
  size_t read(std::string_view text, std::string* out);

  Status status() const { return status_; }
  // It is an object: something was given out, or it is empty.
  bool begun() const { return begun_; }

 private:
  size_t read_object(std::string_view text, std::string* out);
  size_t read_string(std::string_view text, std::string* out);

  enum class Form : uint8_t { kUnknown, kObject, kString };

  Form form_ = Form::kUnknown;
  Status status_ = Status::kOpen;
  bool begun_ = false;
  JsonScanner scanner_;
  JsonStringDecoder decoder_;
};

}  // namespace atom::server
