// One request as the workload has it, before it is written for an endpoint. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atom::bench_serve {

// Exactly one of text, token_ids and messages_json is set.
struct Prompt {
  std::string text;
  std::vector<int32_t> token_ids;
  std::string messages_json;  // a chat's array of messages
  int32_t prompt_len = 0;     // tokens, as far as known
  int32_t output_len = 0;     // tokens to ask for
};

}  // namespace atom::bench_serve
