#include "ops/token_dispatch/token_dispatch.h"

#include "base/check.h"
#include "ops/token_dispatch/token_dispatch_cuda.h"
#include "tensor/operator_trace.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int64_t kAlignment = 256;
constexpr int64_t kGroup = 128;  // values that share a scale

// Takes parts of one piece of memory, one behind the other.
class Parts {
 public:
  int64_t take(int64_t bytes) {
    const int64_t begin = end_;
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

DispatchOffsets offsets_of(const Shape& rows, int64_t k, DType dtype, bool in_float8) {
  const int64_t count = rows[0], size = rows[1];
  Parts parts;
  DispatchOffsets at;
  at.ids = parts.take(count * k * dtype_size(DType::kInt32));
  at.weights = parts.take(count * k * dtype_size(DType::kFloat32));
  at.rows = parts.take(count * size * (in_float8 ? 1 : dtype_size(dtype)));
  at.scales = parts.end();
  if (in_float8) parts.take(count * ((size + kGroup - 1) / kGroup) * dtype_size(DType::kFloat32));
  at.end = parts.end();
  return at;
}

Tensor part_of(const Tensor& memory, int64_t offset, const Shape& shape, DType dtype) {
  if (!memory.has_data()) return Tensor::meta(shape, dtype);
  return Tensor(
      static_cast<char*>(memory.raw_data()) + offset, dtype, shape, nullptr, memory.device());
}

int64_t places_of(const Tensor& rows, const Communicator& ranks) {
  CHECK(rows.size(0) % ranks.size() == 0);
  return rows.size(0) / ranks.size();
}

void note(const Stream& stream, const char* operation, int64_t bytes) {
  OperatorTrace* const trace = stream.trace();
  if (trace != nullptr && trace->is_started()) trace->begin(operation, "ranks", {.bytes = bytes});
}

}  // namespace

bool supports_token_dispatch(int64_t hidden_size, DType dtype) {
#ifdef ATOM_CUDA
  const bool is_float =
      dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_float && hidden_size * dtype_size(dtype) % kVectorBytes == 0;
#else
  (void)hidden_size, (void)dtype;
  return false;
#endif
}

DispatchedTokens dispatched_tokens(int num_ranks,
                                   int64_t places,
                                   const Tensor& x,
                                   int64_t k,
                                   bool in_float8,
                                   Workspace& workspace) {
  const Shape rows = {num_ranks * places, x.size(1)}, choices = {num_ranks * places, k};
  const DispatchOffsets at = offsets_of(rows, k, x.dtype(), in_float8);
  DispatchedTokens to;
  to.in_float8 = in_float8;
  to.memory = workspace.tensor({at.end}, DType::kUInt8);
  to.ids = part_of(to.memory, at.ids, choices, DType::kInt32);
  to.weights = part_of(to.memory, at.weights, choices, DType::kFloat32);
  to.x =
      in_float8 ? workspace.tensor(rows, x.dtype()) : part_of(to.memory, at.rows, rows, x.dtype());
  return to;
}

void dispatch_tokens(const Stream& stream,
                     const Communicator& ranks,
                     const ExpertRanges& experts,
                     const Tensor& x,
                     const Tensor& ids,
                     const Tensor& weights,
                     const DispatchedTokens& to) {
  TensorCheck check("dispatch_tokens");
  check.contiguous("x", x, {"n", "H"}, x.dtype());
  check.contiguous("ids", ids, {"n", "k"}, DType::kInt32);
  check.contiguous("weights", weights, {"n", "k"}, DType::kFloat32);
  check.contiguous("to.x", to.x, {"rows", "H"}, x.dtype());
  check.contiguous("to.ids", to.ids, {"rows", "k"}, DType::kInt32);
  check.contiguous("to.weights", to.weights, {"rows", "k"}, DType::kFloat32);
  CHECK(x.size(0) <= places_of(to.x, ranks));
  if (stream.is_dry_run()) return;
  CHECK(supports_token_dispatch(x.size(1), x.dtype()));
  note(stream, "dispatch_tokens", to.memory.num_bytes());
#ifdef ATOM_CUDA
  const DispatchOffsets at = offsets_of(to.x.shape(), ids.size(1), x.dtype(), to.in_float8);
  CHECK(to.memory.num_bytes() == at.end);
  dispatch_tokens_cuda(stream, ranks, {experts, x, ids, weights, to, at});
#else
  (void)experts;
#endif
}

void combine_tokens(const Stream& stream,
                    const Communicator& ranks,
                    const ExpertRanges& experts,
                    const Tensor& ids,
                    const Tensor& came_ids,
                    const Tensor& y,
                    const Tensor& out) {
  TensorCheck check("combine_tokens");
  check.contiguous("ids", ids, {"n", "k"}, DType::kInt32);
  check.contiguous("came_ids", came_ids, {"rows", "k"}, DType::kInt32);
  check.contiguous("y", y, {"rows", "H"}, y.dtype());
  check.contiguous("out", out, {"n", "H"}, y.dtype());
  CHECK(out.size(0) <= places_of(y, ranks));
  if (stream.is_dry_run()) return;
  CHECK(supports_token_dispatch(y.size(1), y.dtype()));
  note(stream, "combine_tokens", y.num_bytes());
#ifdef ATOM_CUDA
  combine_tokens_cuda(stream, ranks, {experts, ids, came_ids, y, out});
#else
  (void)experts;
#endif
}

}  // namespace atom::ops
