#include "comm/device/device_group.h"

#include <string>
#include <utility>

#include "base/mutex.h"
#include "comm/device/collectives.h"
#include "comm/device/host_gate.h"
#include "comm/device/mailbox.h"
#include "comm/device/reduced_type.h"
#include "comm/local/local_group.h"
#include "tensor/gpu_check.h"
#include "tensor/gpu_launch.h"

namespace atom {
namespace {

// The calling thread's card, which is its own again at the end.
class CardScope {
 public:
  CardScope() { GPU_CHECK(ATOM_GPU(GetDevice)(&before_)); }
  ~CardScope() { (void)ATOM_GPU(SetDevice)(before_); }
  CardScope(const CardScope&) = delete;
  CardScope& operator=(const CardScope&) = delete;

 private:
  int before_ = 0;
};

Status runtime_error(const Device& device, gpuError_t error) {
  ATOM_GPU(GetLastError)();  // it is answered here
  return unavailable(
      "{} cannot join a group: {}", device.to_string(), ATOM_GPU(GetErrorString)(error));
}

#define RETURN_IF_REFUSED(device, call)                                  \
  do {                                                                   \
    if (const gpuError_t error_ = (call); error_ != ATOM_GPU(Success)) { \
      return runtime_error(device, error_);                              \
    }                                                                    \
  } while (false)

// The current card `device` may reach the memory of `peer` from here on.
Status open_way(const Device& device, const Device& peer) {
  int can_access = 0;
  RETURN_IF_REFUSED(device, ATOM_GPU(DeviceCanAccessPeer)(&can_access, device.index, peer.index));
  if (can_access == 0) {
    return unavailable(
        "{} cannot reach the memory of {}: ranks on several GPUs need cards of one node with "
        "NVLink or PCIe peer access between them (nvidia-smi topo -p2p rw shows it)",
        device.to_string(),
        peer.to_string());
  }
  const gpuError_t error = ATOM_GPU(DeviceEnablePeerAccess)(peer.index, 0);
  if (error == ATOM_GPU(ErrorPeerAccessAlreadyEnabled)) {
    ATOM_GPU(GetLastError)();
    return {};
  }
  RETURN_IF_REFUSED(device, error);
  return {};
}

// What the ranks share: memory, and why the group has failed.
class DeviceGroup {
 public:
  static Result<std::shared_ptr<DeviceGroup>> open(const std::vector<Device>& devices,
                                                   std::chrono::milliseconds timeout,
                                                   const LargeSums& large_sums) {
    auto group = std::make_shared<DeviceGroup>(devices, timeout, large_sums);
    RETURN_IF_ERROR(group->set_up());
    return group;
  }

  DeviceGroup(const std::vector<Device>& devices,
              std::chrono::milliseconds timeout,
              const LargeSums& large_sums)
      : devices_(devices),
        timeout_(timeout),
        large_sums_(large_sums),
        gate_(static_cast<int>(devices.size()), timeout, kPacketsPerLane) {}
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  // Kernels of the last operations may still be on their way.
  ~DeviceGroup() {
    const CardScope scope;
    for (const Device& device : devices_) {
      (void)ATOM_GPU(SetDevice)(device.index);
      (void)ATOM_GPU(DeviceSynchronize)();
    }
    for (int rank = 0; rank < size(); ++rank) {
      (void)ATOM_GPU(SetDevice)(devices_[rank].index);
      (void)ATOM_GPU(Free)(view_.mailboxes[rank]);
      (void)ATOM_GPU(Free)(view_.codes[rank]);
    }
    (void)ATOM_GPU(FreeHost)(view_.flags);
  }

  int size() const { return static_cast<int>(devices_.size()); }
  const LargeSums& large_sums() const { return large_sums_; }
  HostGate& gate() { return gate_; }

  PeerView view_of(int rank) const {
    PeerView view = view_;
    view.rank = rank;
    return view;
  }

  Status status() {
    const MutexLock lock(&mutex_);
    if (failure_.ok()) failure_ = lost();
    if (!failure_.ok()) gate_.close();
    return failure_;
  }

  void fail(Status reason) {
    CHECK(!reason.ok());
    {
      const MutexLock lock(&mutex_);
      if (failure_.ok()) failure_ = lost();
      if (failure_.ok()) failure_ = std::move(reason);
    }
    gate_.close();
    __atomic_store_n(&view_.flags->is_over, 1u, __ATOMIC_RELEASE);
  }

  // What became of a host's wait: false when the group has failed.
  bool has_met(int rank, const HostGate::Missing& missing) {
    if (missing) fail(lost(rank, *missing));
    return status().ok();
  }

 private:
  Status set_up() {
    const CardScope scope;
    view_.size = size();
    view_.timeout = static_cast<uint64_t>(std::chrono::nanoseconds(timeout_).count());
    void* flags = nullptr;
    RETURN_IF_REFUSED(devices_[0],
                      ATOM_GPU(HostAlloc)(&flags, sizeof(GroupFlags), ATOM_GPU(HostAllocPortable)));
    view_.flags = new (flags) GroupFlags();
    for (int rank = 0; rank < size(); ++rank) RETURN_IF_ERROR(set_up_card(rank));
    return {};
  }

  Status set_up_card(int rank) {
    const Device& device = devices_[rank];
    RETURN_IF_REFUSED(device, ATOM_GPU(SetDevice)(device.index));
    for (const Device& peer : devices_) {
      if (peer != device) RETURN_IF_ERROR(open_way(device, peer));
    }
    RETURN_IF_REFUSED(device, load_collectives());
    RETURN_IF_REFUSED(device, load_packets(size()));
    RETURN_IF_REFUSED(device, load_messages());
    void* memory = nullptr;
    RETURN_IF_REFUSED(device, ATOM_GPU(Malloc)(&memory, mailbox_size(size())));
    view_.mailboxes[rank] = static_cast<Mailbox*>(memory);
    RETURN_IF_REFUSED(device, ATOM_GPU(Memset)(memory, 0, mailbox_size(size())));
    if (large_sums_.format != SumFormat::kWhole) {
      RETURN_IF_REFUSED(device, load_coded_sums());
      RETURN_IF_REFUSED(device, ATOM_GPU(Malloc)(&memory, coded_sum_memory(size())));
      view_.codes[rank] = static_cast<uint8_t*>(memory);
    }
    RETURN_IF_REFUSED(device, ATOM_GPU(DeviceSynchronize)());
    return {};
  }

  // What a kernel that waited in vain has left.
  Status lost() const REQUIRES(mutex_) {
    for (int rank = 0; rank < size(); ++rank) {
      const uint32_t missing = __atomic_load_n(&view_.flags->missing[rank], __ATOMIC_ACQUIRE);
      if (missing == 0) continue;
      return lost(rank, static_cast<int>(missing) - 1);
    }
    return {};
  }
  Status lost(int rank, int missing) const {
    return unavailable(
        "rank {} of {} waited {} ms for rank {}: lost", rank, size(), timeout_.count(), missing);
  }

  const std::vector<Device> devices_;
  const std::chrono::milliseconds timeout_;
  const LargeSums large_sums_;
  PeerView view_{};
  HostGate gate_;
  Mutex mutex_;
  Status failure_ GUARDED_BY(mutex_);
};

// A tensor of the host, for the group's way between threads.
Tensor on_host(const void* data, DType dtype, const Shape& shape) {
  return Tensor(const_cast<void*>(data), dtype, shape);
}
Tensor bytes_on_host(const void* data, const Shape& shape) {
  return on_host(data, DType::kUInt8, shape);
}

class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(int rank,
                     Device device,
                     std::shared_ptr<DeviceGroup> group,
                     std::unique_ptr<Communicator> host)
      : Communicator(rank, group->size()),
        device_(device),
        group_(std::move(group)),
        host_(std::move(host)),
        view_(group_->view_of(rank)) {}

  ~DeviceCommunicator() override {
    group_->fail(unavailable("rank {} of {} has left the group", rank(), size()));
  }

  const PeerView* peers(const Stream& stream) const override {
    return is_open(stream) ? &view_ : nullptr;
  }

  void meet_all() override { (void)has_met(gate().meet_all(rank())); }
  void meet_neighbors() override { (void)has_met(gate().meet_neighbors(rank())); }

  Status status() const override {
    const Status status = group_->status();
    if (!status.ok()) {
      host_->fail(status);
      return status;
    }
    const Status of_host = host_->status();
    if (!of_host.ok()) group_->fail(of_host);
    return of_host;
  }

  void fail(Status reason) override {
    group_->fail(std::move(reason));
    host_->fail(group_->status());
  }

 protected:
  void do_all_reduce(
      const Stream& stream, void* x, int64_t count, DType dtype, ReduceOp op) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] { host_->all_reduce(stream, on_host(x, dtype, {count}), op); });
    }
    reduce(stream, {x, nullptr, count, {}, op}, dtype);
  }

  void do_reduce_scatter(
      const Stream& stream, void* whole, void* part, int64_t count, DType dtype) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] {
        host_->reduce_scatter(
            stream, on_host(whole, dtype, {size(), count}), on_host(part, dtype, {count}));
      });
    }
    reduce(stream, {whole, part, count, {}, ReduceOp::kSum}, dtype);
  }

  void do_all_gather(const Stream& stream, const void* part, void* whole, int64_t bytes) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] {
        host_->all_gather(
            stream, bytes_on_host(part, {bytes}), bytes_on_host(whole, {size(), bytes}));
      });
    }
    move(stream, "all_gather", {part, whole, bytes, 0, bytes});
  }

  void do_all_to_all(const Stream& stream, const void* from, void* to, int64_t bytes) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] {
        host_->all_to_all(
            stream, bytes_on_host(from, {size(), bytes}), bytes_on_host(to, {size(), bytes}));
      });
    }
    move(stream, "all_to_all", {from, to, bytes, bytes, bytes});
  }

  void do_broadcast(const Stream& stream, void* x, int64_t bytes, int root) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] { host_->broadcast(stream, bytes_on_host(x, {bytes}), root); });
    }
    move(stream, "broadcast", {rank() == root ? x : nullptr, x, bytes, 0, 0});
  }

  void do_barrier(const Stream& stream) override {
    if (stream.device().is_cpu()) return exchange_on_host([&] { host_->barrier(stream); });
    if (is_open(stream)) enqueued("barrier", launch_barrier(view_, queue_of(stream)));
  }

  void do_send(const Stream& stream, const void* x, int64_t bytes, int to) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] { host_->send(stream, bytes_on_host(x, {bytes}), to); });
    }
    if (!status().ok()) return;
    const int64_t size = packets_of_lane(bytes);
    const bool records = is_recording(stream);
    if (!records && !has_met(gate().before_send(rank(), to, size))) return;
    enqueued("send", launch_send(view_, x, bytes, to, queue_of(stream)));
    if (!records) gate().after_send(rank(), to, size);
  }

  void do_receive(const Stream& stream, void* x, int64_t bytes, int from) override {
    if (stream.device().is_cpu()) {
      return exchange_on_host([&] { host_->receive(stream, bytes_on_host(x, {bytes}), from); });
    }
    if (!status().ok()) return;
    const int64_t size = packets_of_lane(bytes);
    if (!is_recording(stream) && !has_met(gate().before_receive(from, rank(), size))) return;
    enqueued("receive", launch_receive(view_, x, bytes, from, queue_of(stream)));
  }

 private:
  HostGate& gate() const { return group_->gate(); }
  bool has_met(const HostGate::Missing& missing) const { return group_->has_met(rank(), missing); }

  // Before an operation of all ranks is enqueued. False when the group has failed: nothing more is.
  bool is_open(const Stream& stream) const {
    CHECK((stream.device() == device_));
    if (!status().ok()) return false;
    return is_recording(stream) || has_met(gate().meet_all(rank()));
  }

  static bool is_recording(const Stream& stream) {
    auto state = ATOM_GPU(StreamCaptureStatusNone);
    GPU_CHECK(ATOM_GPU(StreamIsCapturing)(queue_of(stream), &state));
    return state != ATOM_GPU(StreamCaptureStatusNone);
  }

  static gpuStream_t queue_of(const Stream& stream) {
    return static_cast<gpuStream_t>(stream.queue().handle());
  }

  static void enqueued(const char* operation, gpuError_t) { check_gpu_launch(operation); }

  void reduce(const Stream& stream, ReduceLaunch launch, DType dtype) {
    const std::optional<ReducedType> type = reduced_type(dtype);
    CHECK(type.has_value());
    launch.type = *type;
    if (launch.count == 0) return;
    if (!is_open(stream)) return;
    const int64_t bytes = launch.count * dtype_size(dtype);
    const LargeSums& large = group_->large_sums();
    if (large.format != SumFormat::kWhole && bytes >= large.least_bytes && fits_codes(launch)) {
      return enqueued("reduce",
                      launch_reduce_by_codes(view_, launch, large.format, queue_of(stream)));
    }
    const bool is_small = fits_packets(view_, bytes);
    enqueued("reduce",
             is_small ? launch_reduce_by_packets(view_, launch, queue_of(stream))
                      : launch_reduce_by_address(view_, launch, queue_of(stream)));
  }

  void move(const Stream& stream, const char* operation, const MoveLaunch& launch) {
    if (launch.bytes == 0) return;
    if (!is_open(stream)) return;
    // Of a broadcast the root hears nothing, so nobody may send packets.
    const bool is_small = launch.to_stride > 0 && fits_packets(view_, launch.bytes);
    enqueued(operation,
             is_small ? launch_move_by_packets(view_, launch, queue_of(stream))
                      : launch_move_by_address(view_, launch, queue_of(stream)));
  }

  template <typename Body>
  void exchange_on_host(const Body& body) {
    if (!status().ok()) return;
    body();
    (void)status();  // the cards hear of what failed on the host
  }

  const Device device_;
  const std::shared_ptr<DeviceGroup> group_;
  const std::unique_ptr<Communicator> host_;
  const PeerView view_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> make_device_group(
    const std::vector<Device>& devices,
    std::chrono::milliseconds timeout,
    const LargeSums& large_sums) {
  CHECK(!devices.empty());
  if (devices.size() > kMaxPeers) {
    return invalid_argument(
        "{} GPUs in one group of ranks: at most {}", devices.size(), int{kMaxPeers});
  }
  for (const Device& device : devices) CHECK(!device.is_cpu());
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceGroup> group,
                   DeviceGroup::open(devices, timeout, large_sums));
  std::vector<std::unique_ptr<Communicator>> hosts = make_local_group(group->size(), timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < group->size(); ++rank) {
    ranks.push_back(
        std::make_unique<DeviceCommunicator>(rank, devices[rank], group, std::move(hosts[rank])));
  }
  return ranks;
}

}  // namespace atom
