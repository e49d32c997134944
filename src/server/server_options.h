// What a user may choose about the server, beside the engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "server/http/http_server.h"
#include "server/parsers/output_parser.h"

namespace atom::server {

struct ServerOptions {
  HttpServerOptions http;
  std::vector<std::string> served_model_names;  // the first is the one answers name; at least one
  std::vector<std::string> api_keys;            // empty: none is asked for
  std::vector<std::string> allowed_origins;     // CORS; "*" is any, empty none
  OutputFormatChoice output_format;
  std::string default_chat_template_kwargs;            // JSON object, or empty
  int num_workers = 0;                                 // threads that parse and tokenise; 0 chooses
  size_t max_stream_buffer = 8 << 20;                  // bytes held for a client that reads slowly
  std::chrono::milliseconds shutdown_timeout{30'000};  // for running answers after SIGTERM
};

}  // namespace atom::server
