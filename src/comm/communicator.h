// What the ranks of a group do together: sums, exchanges, messages. A transport implements the
// do_*() functions: comm/local/ for threads of one process, comm/device/ for those with a GPU each,
// comm/tcp/ for processes, comm/staged/ for GPUs by way of the host, over one of the others.
//
// Every rank of a group calls the same operations in the same order with tensors of the same shapes
// and dtypes; one thread at a time on each rank. Tensors are contiguous and on the stream's device.
// On a dry run, and in a group of one rank, nothing is exchanged.
//
// Where operations are enqueued on a device, the hosts of all ranks have come to one before any of
// them enqueues it: no device waits for a rank whose host may want an idle device first. Only of
// operations that are recorded nobody is waited for, nor by who sends a message that fits.
//
// A group fails as a whole: when a rank leaves, or does not come within the time that the transport
// gives an operation, or says so by fail(). From then on every operation of every rank returns at
// once, and what it was to write has no defined content. Nobody asks each operation: whoever ends a
// step looks at status().
#pragma once

#include <cstdint>

#include "base/status.h"
#include "comm/reduce_op.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

struct PeerView;

class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;  // leaves the group, which fails unless it is over
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // x of every rank becomes the sum (least, largest) of all. float32, float16, bfloat16, int32 and
  // int64. Values of 16 bits are added in float32 and rounded once. The order is that of ranks, so
  // the result has the same bits on all of them and in every run.
  void all_reduce(const Stream& stream, const Tensor& x, ReduceOp op = ReduceOp::kSum);
  // whole[i] = part of rank i.
  void all_gather(const Stream& stream,
                  const Tensor& part,    // [n...]
                  const Tensor& whole);  // [size, n...]
  // part = sum over ranks of their whole[rank], as all_reduce() adds.
  void reduce_scatter(const Stream& stream,
                      const Tensor& whole,  // [size, n...], unspecified afterwards
                      const Tensor& part);  // [n...]
  // to[i] = from[rank] of rank i.
  void all_to_all(const Stream& stream,
                  const Tensor& from,  // [size, n...]
                  const Tensor& to);   // [size, n...], other memory
  // x of every rank becomes that of `root`.
  void broadcast(const Stream& stream, const Tensor& x, int root);
  // Returns when every rank has come.
  void barrier(const Stream& stream);
  // A message between two ranks, in order for each pair. Either may return before the other.
  void send(const Stream& stream, const Tensor& x, int to);
  void receive(const Stream& stream, const Tensor& x, int from);

  // What a kernel needs that exchanges by itself and is enqueued next, on all ranks
  // (comm/device/mailbox.h); null where ranks do not write each other's memory, and in a group that
  // has failed. Lives as long as this.
  virtual const PeerView* peers(const Stream& /*stream*/) const { return nullptr; }

  // What a device has passes through the host's memory, because ranks on other nodes do not see the
  // device's. Such operations cannot be part of what is recorded on a device's stream.
  virtual bool goes_through_host() const { return false; }

  // Before work is enqueued again that was recorded with operations of all ranks, or with messages
  // from each rank to the next one: hosts wait for each other as they do before other operations.
  virtual void meet_all() {}
  virtual void meet_neighbors() {}

  // Why the group has failed. From any thread.
  virtual Status status() const = 0;
  // Ends the group for all ranks; the first reason counts. From any thread.
  virtual void fail(Status reason) = 0;

 protected:
  // Memory of `bytes` or `count` elements; at least two ranks.
  virtual void do_all_reduce(
      const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) = 0;
  virtual void do_all_gather(const Stream& stream,
                             const void* part,
                             void* whole,
                             int64_t bytes) = 0;
  virtual void do_reduce_scatter(
      const Stream& stream, void* whole, void* part, int64_t count, DType dtype) = 0;
  virtual void do_all_to_all(const Stream& stream, const void* from, void* to, int64_t bytes) = 0;
  virtual void do_broadcast(const Stream& stream, void* x, int64_t bytes, int root) = 0;
  virtual void do_barrier(const Stream& stream) = 0;
  virtual void do_send(const Stream& stream, const void* x, int64_t bytes, int to) = 0;
  virtual void do_receive(const Stream& stream, void* x, int64_t bytes, int from) = 0;

 private:
  bool has_work(const Stream& stream) const { return size_ > 1 && !stream.is_dry_run(); }

  const int rank_;
  const int size_;
};

}  // namespace atom
