// The conversation of `atom chat`: reads messages, streams answers, obeys the commands that begin
// with a slash.
#pragma once

#include <string>
#include <vector>

#include "cli/chat_prompt.h"
#include "cli/interrupts.h"
#include "cli/line_reader.h"
#include "cli/style.h"
#include "engine/llm_engine.h"

namespace atom::cli {

class ChatLoop {
 public:
  // `engine` and `interrupts` outlive the loop. `system` may be empty, and `history`, the file of
  // what was typed.
  ChatLoop(LLMEngine* engine,
           ChatPrompt prompt,
           SamplingParams sampling,
           std::string system,
           const std::string& history,
           Interrupts* interrupts);

  // Until the input ends; returns the exit code.
  int run();

 private:
  enum class Next { kGoOn, kLeave };

  Next obey(const std::string& line);
  // Sends `text` and streams the answer. The conversation grows only when there is one.
  Next answer(const std::string& text);
  // Streams one request. False when standard output is gone.
  bool stream(const Prompt& prompt, RequestOutput* output);
  void report(const Status& status);
  void hint_when_full(const RequestOutput& output) const;
  void restart();

  LLMEngine* const engine_;
  const ChatPrompt prompt_;
  const SamplingParams sampling_;
  std::string system_;
  Interrupts* const interrupts_;
  LineReader reader_;
  const bool interactive_;  // a person types: prompts and hints are shown
  const Style style_;       // of standard error
  std::vector<ChatMessage> messages_;
  int exit_code_ = 0;
};

}  // namespace atom::cli
