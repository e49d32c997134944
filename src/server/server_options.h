// What a user may choose about the server, beside the engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "config/sampling_params.h"
#include "server/api_key.h"
#include "server/http/http_server.h"
#include "server/parsers/output_parser.h"

namespace atom::server {

struct ServerOptions {
  HttpServerOptions http;
  std::vector<std::string> served_model_names;  // the first is the one answers name; at least one
  std::vector<ApiKey> api_keys;              // beside those of the file; none at all: open to all
  std::string api_key_file;                  // read again by Server::reload()
  bool cache_salt_per_key = false;           // prompts are cached for each key apart
  std::vector<std::string> allowed_origins;  // CORS; "*" is any, empty none
  // Names that clients may call the server by, beside addresses, "localhost" and http.host; "*" is
  // any. Empty: any, unless it listens on a loopback address, where others come from a web page.
  std::vector<std::string> allowed_hosts;
  std::string root_path;             // "/a": that a proxy may leave in front of paths; or empty
  bool serves_page = true;           // at /
  bool force_include_usage = false;  // in every stream
  bool strict_fields = false;        // refuse fields of requests that are not known
  int32_t max_logprobs = SamplingParams::kMaxLogprobs;  // per token that a request may ask for
  OutputFormatChoice output_format;
  std::string default_chat_template_kwargs;  // JSON object, or empty
  bool trust_request_chat_template = false;  // else chat_template of a request is refused
  int num_workers = 0;                       // threads that parse and tokenize; 0 chooses
  size_t max_stored_bytes = 0;         // of conversations that may be continued by an answer's id
  size_t max_stream_buffer = 8 << 20;  // bytes held for a client that reads slowly
  std::chrono::milliseconds shutdown_timeout{30'000};  // for running answers after SIGTERM
};

}  // namespace atom::server
