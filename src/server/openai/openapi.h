// The OpenAPI 3.1 document of all endpoints. The schemas of request bodies are made from the tables
// that the parsers use, so that a body fits its schema exactly when the parser takes it (but for
// the few rules between fields that JSON Schema cannot say: they are in the descriptions).
#pragma once

#include <cstdint>
#include <string>

#include "config/sampling_params.h"

namespace atom::server {

struct OpenApiOptions {
  std::string version;      // of the program
  SamplingParams defaults;  // as the parsers get them
  int64_t vocab_size = 0;   // bounds token ids; 0: any int32
  bool needs_api_key = false;
  bool profiles = false;  // the endpoints of profiles are there
};

std::string openapi_json(const OpenApiOptions& options);

}  // namespace atom::server
