// Prompts as JSON bodies of OpenAI's completions and chat completions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "bench_serve/prompt.h"

namespace atom::bench_serve {

enum class EndpointKind { kCompletions, kChat };

struct BodyOptions {
  EndpointKind kind = EndpointKind::kCompletions;
  std::string model;
  bool stream = true;
  bool include_usage = true;  // stream_options
  bool ignore_eos = true;
  std::string max_tokens_name = "max_tokens";
  std::optional<double> temperature;
  std::string extra_body;  // a JSON object whose fields win; may be empty
};

class BodyWriter {
 public:
  // An error when extra_body is no JSON object.
  static Result<BodyWriter> create(const BodyOptions& options);

  const BodyOptions& options() const { return options_; }
  // An error when the endpoint cannot take such a prompt.
  Result<std::string> write(const Prompt& prompt) const;

 private:
  BodyOptions options_;
  std::shared_ptr<const Json> common_;  // the fields that all bodies share
};

}  // namespace atom::bench_serve
