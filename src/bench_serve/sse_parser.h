// Server-sent events from bytes as they come, in whatever pieces. An event whose lines lie within
// one piece, as nearly all do, is handed on in place. Lines end with LF or CRLF.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"

namespace atom::bench_serve {

class SseParser {
 public:
  static constexpr size_t kMaxEventSize = 8 << 20;  // bytes

  void reset() {
    line_.clear();
    data_.clear();
    has_data_ = is_error_ = false;
  }

  // Calls `on_event(std::string_view data, bool is_error)`, which returns a Status, for every
  // event. `is_error`: the server named it one, by its type or by an "error:" field.
  template <typename OnEvent>
  Status feed(std::string_view bytes, OnEvent&& on_event) {
    while (!bytes.empty()) {
      const void* found = std::memchr(bytes.data(), '\n', bytes.size());
      if (found == nullptr) return keep(bytes);
      const size_t size = static_cast<const char*>(found) - bytes.data();
      std::string_view line = bytes.substr(0, size);
      if (!line_.empty()) {
        RETURN_IF_ERROR(keep(line));
        line = line_;
      }
      bytes.remove_prefix(size + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      RETURN_IF_ERROR(take_line(line, bytes, on_event));
      line_.clear();
    }
    return {};
  }

  // The body is over: an event that lacks its end is handed on too.
  template <typename OnEvent>
  Status finish(OnEvent&& on_event) {
    if (!line_.empty()) RETURN_IF_ERROR(take_line(line_, {}, on_event));
    line_.clear();
    return dispatch(on_event);
  }

 private:
  Status keep(std::string_view bytes) {
    if (line_.size() + bytes.size() > kMaxEventSize) return too_long();
    line_ += bytes;
    return {};
  }

  static Status too_long() {
    return resource_exhausted("an event of the stream is longer than {} bytes", kMaxEventSize);
  }

  // `rest` is what follows the line, as far as it is there.
  template <typename OnEvent>
  Status take_line(std::string_view line, std::string_view rest, OnEvent& on_event) {
    if (line.empty()) return dispatch(on_event);
    if (line[0] == ':') return {};
    const size_t colon = line.find(':');
    const std::string_view name = line.substr(0, colon);
    line.remove_prefix(colon == std::string_view::npos ? line.size() : colon + 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (name == "event") is_error_ = line == "error";
    if (name == "error") is_error_ = true;
    if (name != "data" && name != "error") return {};
    if (!has_data_ && (rest.starts_with('\n') || rest.starts_with("\r\n"))) {
      const bool is_error = is_error_;
      is_error_ = false;
      return on_event(line, is_error);
    }
    if (data_.size() + line.size() > kMaxEventSize) return too_long();
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
    return {};
  }

  template <typename OnEvent>
  Status dispatch(OnEvent& on_event) {
    const bool is_error = is_error_;
    is_error_ = false;
    if (!has_data_) return {};
    has_data_ = false;
    const std::string data = std::move(data_);
    data_.clear();
    return on_event(data, is_error);
  }

  std::string line_;  // a line whose end has not come yet
  std::string data_;  // lines of an event whose end has not come yet
  bool has_data_ = false;
  bool is_error_ = false;
};

}  // namespace atom::bench_serve
