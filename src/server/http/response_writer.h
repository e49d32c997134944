// How answers look on the wire: the head, and pieces of a body in the chunked transfer encoding.
// Pure functions on bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace atom::server {

enum class BodyFraming { kLength, kChunked, kUntilClose };

struct HeadFacts {
  std::string_view date;
  std::string_view request_id;
  BodyFraming framing = BodyFraming::kLength;
  bool keep_alive = false;
  bool is_http_1_1 = true;  // the request was
};

// Whether an answer of this status may have a body.
bool allows_body(int status);

// Appends status line, headers and the empty line. Headers of `response` that would contradict the
// server's own are left out.
void append_response_head(const HttpResponse& response, const HeadFacts& facts, std::string* out);

// Room to leave in front of a piece for finish_chunk().
constexpr size_t kChunkHeadSize = 18;

// Makes a chunk of what follows the room at the begin of `buffer`, the last of the body if
// `is_last`. Returns where in `buffer` it begins. A piece without bytes gives an empty buffer, or
// the end alone.
size_t finish_chunk(bool is_last, std::string* buffer);

}  // namespace atom::server
