// A profile of a command's whole run, with --profile-dir; nothing without.
#pragma once

#include "base/status.h"
#include "engine/llm_engine.h"

namespace atom::cli {

Status start_profile(LLMEngine* engine);
// Says on standard error where the profile lies.
Status finish_profile(LLMEngine* engine);

}  // namespace atom::cli
