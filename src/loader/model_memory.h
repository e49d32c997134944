// The two steps of loading that allocate a model's weights, with an error where memory ends.
#pragma once

#include "base/status.h"
#include "nn/module.h"
#include "tensor/stream.h"

namespace atom {

Status allocate_or_fail(Module* model, const Stream& stream);
Status finish_or_fail(Module* model, const Stream& stream);

}  // namespace atom
