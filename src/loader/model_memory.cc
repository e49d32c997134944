#include "loader/model_memory.h"

#include <new>

#include "tensor/stream.h"

namespace atom {

Status allocate_or_fail(Module* model) {
  try {
    model->allocate_parameters();
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory for the model's weights of {} bytes",
                              model->parameter_bytes());
  }
  return {};
}

Status finish_or_fail(Module* model, ThreadPool* pool) {
  try {
    return model->finish_load(Stream(pool));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("no memory to rearrange the model's weights of {} bytes",
                              model->parameter_bytes());
  }
}

}  // namespace atom
