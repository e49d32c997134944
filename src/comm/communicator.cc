#include "comm/communicator.h"

#include <cstring>

#include "tensor/operator_trace.h"

namespace atom {
namespace {

// Of what a rank has there at least; what ranks wait for each other counts as the operation's.
void note(const Stream& stream, const char* operation, int64_t bytes) {
  OperatorTrace* const trace = stream.trace();
  if (trace != nullptr && trace->is_started()) trace->begin(operation, "ranks", {.bytes = bytes});
}

void check_place(const Stream& stream, const Tensor& tensor) {
  CHECK(tensor.is_contiguous());
  CHECK((stream.is_dry_run() || tensor.device() == stream.device()));
}

// `whole` is [size, part...].
void check_parts(const Stream& stream, const Tensor& part, const Tensor& whole, int size) {
  check_place(stream, part);
  check_place(stream, whole);
  CHECK(part.dtype() == whole.dtype());
  CHECK(whole.size(0) == size);
  CHECK(whole.num_elements() == part.num_elements() * size);
}

void copy(const Stream& stream, const Tensor& from, const Tensor& to) {
  if (stream.is_dry_run() || from.num_bytes() == 0 || from.raw_data() == to.raw_data()) return;
  if (stream.device().is_cpu()) {
    std::memcpy(to.raw_data(), from.raw_data(), from.num_bytes());
  } else {
    stream.queue().copy(to.raw_data(), from.raw_data(), from.num_bytes());
  }
}

}  // namespace

void Communicator::all_reduce(const Stream& stream, const Tensor& x, ReduceOp op) {
  check_place(stream, x);
  if (!has_work(stream)) return;
  note(stream, "all_reduce", 2 * x.num_bytes());
  do_all_reduce(stream, x.raw_data(), x.num_elements(), x.dtype(), op);
}

void Communicator::all_gather(const Stream& stream, const Tensor& part, const Tensor& whole) {
  check_parts(stream, part, whole, size_);
  if (!has_work(stream)) return copy(stream, part, whole);
  note(stream, "all_gather", whole.num_bytes());
  do_all_gather(stream, part.raw_data(), whole.raw_data(), part.num_bytes());
}

void Communicator::reduce_scatter(const Stream& stream, const Tensor& whole, const Tensor& part) {
  check_parts(stream, part, whole, size_);
  if (!has_work(stream)) return copy(stream, whole, part);
  note(stream, "reduce_scatter", whole.num_bytes());
  do_reduce_scatter(stream, whole.raw_data(), part.raw_data(), part.num_elements(), part.dtype());
}

void Communicator::all_to_all(const Stream& stream, const Tensor& from, const Tensor& to) {
  check_place(stream, from);
  check_place(stream, to);
  CHECK(from.shape() == to.shape());
  CHECK(from.dtype() == to.dtype());
  CHECK(from.size(0) == size_);
  if (!has_work(stream)) return copy(stream, from, to);
  note(stream, "all_to_all", 2 * from.num_bytes());
  do_all_to_all(stream, from.raw_data(), to.raw_data(), from.num_bytes() / size_);
}

void Communicator::broadcast(const Stream& stream, const Tensor& x, int root) {
  check_place(stream, x);
  CHECK(root >= 0);
  CHECK(root < size_);
  if (has_work(stream)) do_broadcast(stream, x.raw_data(), x.num_bytes(), root);
}

void Communicator::barrier(const Stream& stream) {
  if (has_work(stream)) do_barrier(stream);
}

void Communicator::send(const Stream& stream, const Tensor& x, int to) {
  check_place(stream, x);
  CHECK(to >= 0);
  CHECK(to < size_);
  CHECK(to != rank_);
  if (has_work(stream)) do_send(stream, x.raw_data(), x.num_bytes(), to);
}

void Communicator::receive(const Stream& stream, const Tensor& x, int from) {
  check_place(stream, x);
  CHECK(from >= 0);
  CHECK(from < size_);
  CHECK(from != rank_);
  if (has_work(stream)) do_receive(stream, x.raw_data(), x.num_bytes(), from);
}

}  // namespace atom
