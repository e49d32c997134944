// A front end for tests to kill: starts an engine in a process of its own, prints that process's
// id, and serves requests until it is killed.
//   process_parent EXECUTABLE MODEL
#include <unistd.h>

#include <cstdio>

#include "engine/llm_engine.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  atom::EngineConfig config;
  config.model.model = argv[2];
  config.model.max_model_len = 512;
  config.cache.num_blocks = 256;
  atom::LLMEngineOptions options;
  options.launch.child_process = true;
  options.launch.executable = argv[1];
  const auto engine = atom::LLMEngine::create(config, options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().message().c_str());
    return 1;
  }
  std::printf("%d\n", (*engine)->health().pid);
  std::fflush(stdout);
  for (;;) {
    atom::SamplingParams sampling;
    sampling.max_tokens = 400;
    sampling.ignore_eos = true;
    (void)(*engine)->generate({std::vector<int32_t>{1, 2, 3}}, sampling);
  }
}
