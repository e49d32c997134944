// The C++ API in one page: load a checkpoint, complete prompts, stream one answer.
//   build/release/examples/generate models/tldr-8m "tar"
#include <fmt/core.h>

#include <atomic>
#include <cstdio>

#include "engine/llm_engine.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} CHECKPOINT_FOLDER PROMPT\n", argv[0]);
    return 2;
  }
  atom::EngineConfig config;
  config.model.model = argv[1];
  atom::Result<std::unique_ptr<atom::LLMEngine>> engine = atom::LLMEngine::create(config);
  if (!engine.ok()) {
    fmt::print(stderr, "error: {}\n", engine.status().message());
    return 1;
  }

  // Everything a request can ask for is a field of SamplingParams; these start from the
  // checkpoint's generation_config.json.
  atom::SamplingParams sampling = (*engine)->default_sampling();
  sampling.temperature = 0;
  sampling.max_tokens = 32;

  // Many prompts at once, outputs in order. A bad one has an error in its own status.
  const std::string prompt = argv[2];
  for (const atom::RequestOutput& output : (*engine)->generate({prompt, ""}, sampling)) {
    if (output.status.ok()) {
      fmt::print("{} tokens: {}\n", output.outputs[0].token_ids.size(), output.outputs[0].text);
    } else {
      fmt::print("refused: {}\n", output.status.message());
    }
  }

  // One prompt, its text as it comes. The callback runs on the engine's output thread.
  std::atomic<bool> finished{false};
  const auto on_output = [&](const atom::RequestOutput& output, const atom::RequestUpdate& update) {
    std::fputs(update.text.c_str(), stdout);
    if (!output.finished) return;
    finished = true;
    finished.notify_one();
  };
  const atom::Result<atom::RequestId> request = (*engine)->submit(prompt, sampling, on_output);
  if (!request.ok()) {
    fmt::print(stderr, "error: {}\n", request.status().message());
    return 1;
  }
  finished.wait(false);
  std::putchar('\n');
  return 0;
}
