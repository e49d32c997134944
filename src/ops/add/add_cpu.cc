#include "ops/add/add_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {

void add_reference(const AddArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    const T* x = static_cast<const T*>(args.x);
    T* out = static_cast<T*>(args.out);
    for (int64_t i = begin; i < end; ++i) {
      out[i] = from_float<T>(to_float(out[i]) + to_float(x[i]));
    }
  });
}

}  // namespace atom::ops
