// The two steps of loading that allocate a model's weights, with an error where memory ends.
#pragma once

#include "base/status.h"
#include "base/thread_pool.h"
#include "nn/module.h"

namespace atom {

Status allocate_or_fail(Module* model);
Status finish_or_fail(Module* model, ThreadPool* pool);

}  // namespace atom
