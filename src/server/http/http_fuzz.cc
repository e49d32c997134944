// Requests from anywhere: whatever the bytes are and however they are cut, the reader says the
// same, keeps its limits and delivers only what may be repeated in logs and answers. The first byte
// chooses the cuts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/http/http_text.h"
#include "server/http/request_reader.h"

using namespace atom::server;

namespace {

constexpr RequestLimits kLimits{2048, 4096};

struct Message {
  HttpRequest request;
  bool keeps_alive = false;
};

struct Transcript {
  std::vector<Message> messages;
  int status = 0;
};

void check_request(const HttpRequest& request) {
  CHECK(is_token(request.method));
  CHECK(request.body.size() <= kLimits.max_body_size);
  CHECK((request.path == "*" || request.path[0] == '/'));
  for (const char c : request.path) CHECK(static_cast<uint8_t>(c) >= 0x20);
  size_t size = 0;
  for (const auto& [name, value] : request.headers) {
    CHECK(is_token(name));
    CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos);
    size += name.size() + value.size();
  }
  CHECK(size <= kLimits.max_header_size);
}

// Reads requests one after the other, given in pieces of `piece_size`.
Transcript read_all(std::string_view bytes, size_t piece_size) {
  Transcript transcript;
  while (!bytes.empty()) {
    RequestReader reader(kLimits);
    while (!bytes.empty() && reader.state() != RequestReader::State::kComplete &&
           reader.state() != RequestReader::State::kFailed) {
      const std::string_view piece = bytes.substr(0, piece_size);
      const size_t used = reader.feed(piece);
      CHECK(used <= piece.size());
      const bool is_over = reader.state() == RequestReader::State::kComplete ||
                           reader.state() == RequestReader::State::kFailed;
      CHECK((used == piece.size() || is_over));
      bytes.remove_prefix(used);
    }
    if (reader.state() == RequestReader::State::kFailed) {
      transcript.status = reader.error().status;
      CHECK(transcript.status >= 400);
      return transcript;
    }
    if (reader.state() != RequestReader::State::kComplete) return transcript;
    const bool keeps_alive = reader.keeps_alive();
    transcript.messages.push_back({reader.take_request(), keeps_alive});
    check_request(transcript.messages.back().request);
  }
  return transcript;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t piece_size = data[0] % 16 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Transcript whole = read_all(bytes, bytes.size() + 1);
  const Transcript cut = read_all(bytes, piece_size);
  CHECK(whole.status == cut.status);
  CHECK(whole.messages.size() == cut.messages.size());
  for (size_t i = 0; i < whole.messages.size(); ++i) {
    const HttpRequest& a = whole.messages[i].request;
    const HttpRequest& b = cut.messages[i].request;
    CHECK(a.method == b.method);
    CHECK(a.path == b.path);
    CHECK(a.query == b.query);
    CHECK(a.body == b.body);
    CHECK(a.headers == b.headers);
    CHECK(whole.messages[i].keeps_alive == cut.messages[i].keeps_alive);
  }
  return 0;
}
