// The memory of activations: one arena, planned once for the largest step, handed out as a stack.
// After start-up nothing else is allocated during a step. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

class Workspace {
 public:
  // A workspace without memory that measures: its tensors are meta tensors, peak_size() is what a
  // real one needs for the same sequence of calls.
  Workspace() = default;
  explicit Workspace(int64_t capacity);  // on the CPU
  // On the stream's device, in memory that stays.
  Workspace(const Stream& stream, int64_t capacity);

  // Uninitialised, 64-byte aligned; lives until the innermost open Scope closes.
  Tensor tensor(const Shape& shape, DType dtype);

  // Takes what lies in front of the end of `tensor`, which a closed scope had: nothing is put over
  // it until the innermost open Scope closes.
  void skip_behind(const Tensor& tensor);

  // Of a device: counters by which blocks of a kernel find out who is the last, [kNumCounters]
  // int32 on top of the capacity. All are zero, and whoever counts leaves them so. Undefined in a
  // workspace that measures.
  static constexpr int64_t kNumCounters = 1 << 16;
  const Tensor& counters() const { return counters_; }

  int64_t peak_size() const { return peak_; }  // bytes
  int64_t capacity() const { return capacity_; }

  // Gives back on destruction everything taken since construction. Scopes nest.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    int64_t mark_;
  };

 private:
  Tensor memory_;
  Tensor counters_;
  bool measuring_ = true;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace atom
