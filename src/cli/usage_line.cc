#include "cli/usage_line.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/human.h"

namespace atom::cli {

std::string usage_line(const RequestOutput& output) {
  const RequestMetrics& metrics = output.metrics;
  const size_t generated = output.outputs[0].token_ids.size();
  std::string line =
      fmt::format("prompt tokens: {}, generated: {}", output.prompt_token_ids.size(), generated);
  if (metrics.first_token > 0) {
    line += ", time to first token: " + human_duration(metrics.time_to_first_token());
  }
  if (generated > 1 && metrics.finished > metrics.first_token) {
    line +=
        fmt::format(", {:.1f} tokens/s",
                    static_cast<double>(generated - 1) / (metrics.finished - metrics.first_token));
  }
  return line;
}

std::string usage_line(std::span<const RequestOutput> outputs) {
  size_t prompt_tokens = 0;
  size_t generated = 0;
  double begin = 0;
  double end = 0;
  for (const RequestOutput& output : outputs) {
    if (!output.status.ok()) continue;
    prompt_tokens += output.prompt_token_ids.size();
    for (const CompletionOutput& answer : output.outputs) generated += answer.token_ids.size();
    begin = begin == 0 ? output.metrics.arrival : std::min(begin, output.metrics.arrival);
    end = std::max(end, output.metrics.finished);
  }
  std::string line = fmt::format(
      "prompts: {}, prompt tokens: {}, generated: {}", outputs.size(), prompt_tokens, generated);
  if (end > begin) {
    line += fmt::format(", {}, {:.1f} tokens/s",
                        human_duration(end - begin),
                        static_cast<double>(generated) / (end - begin));
  }
  return line;
}

}  // namespace atom::cli
