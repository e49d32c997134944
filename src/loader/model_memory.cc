#include "loader/model_memory.h"

#include <new>

namespace atom {

Status allocate_or_fail(Module* model, const Stream& stream) {
  try {
    model->allocate_parameters(stream);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory for the model's weights of {} bytes",
                              model->parameter_bytes());
  }
  return {};
}

Status finish_or_fail(Module* model, const Stream& stream) {
  try {
    return model->finish_load(stream);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory to rearrange the model's weights of {} bytes",
                              model->parameter_bytes());
  }
}

}  // namespace atom
