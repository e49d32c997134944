#include "cli/profile_run.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "cli/report.h"

namespace atom::cli {
namespace {

using Action = Status (LLMEngine::*)(ProfileCallback);

Result<ProfileFile> wait_for(Action action, LLMEngine* engine) {
  std::promise<Result<ProfileFile>> answer;
  RETURN_IF_ERROR(
      (engine->*action)([&](const Result<ProfileFile>& file) { answer.set_value(file); }));
  return answer.get_future().get();
}

bool is_profiled(const LLMEngine& engine) {
  return !engine.config().engine.profile_dir.empty();
}

}  // namespace

Status start_profile(LLMEngine* engine) {
  return is_profiled(*engine) ? wait_for(&LLMEngine::start_profile, engine).status() : Status();
}

Status finish_profile(LLMEngine* engine) {
  if (!is_profiled(*engine)) return {};
  ASSIGN_OR_RETURN(const ProfileFile file, wait_for(&LLMEngine::stop_profile, engine));
  std::string dropped;
  if (file.num_dropped_spans > 0) {
    dropped = fmt::format(", the last {} dropped", file.num_dropped_spans);
  }
  note(fmt::format("profile: {} ({} spans{})", file.path, file.num_spans, dropped));
  return {};
}

}  // namespace atom::cli
