#include "runner/choose_device.h"

#include "tensor/device_runtime.h"

namespace atom {
namespace {

int32_t num_ranks(const ParallelConfig& parallel) {
  return parallel.ranks_of_copy() * parallel.data_parallel_size;
}

Status only_on_cpu(const std::string& what) {
  return unimplemented("{}: not on GPUs yet; take --device cpu", what);
}

Status check_kinds(const ResolvedConfig& config) {
  const ParallelConfig& parallel = config.engine.parallel;
  if (config.engine.nodes.num_nodes > 1) {
    return only_on_cpu(fmt::format("--nnodes {}", config.engine.nodes.num_nodes));
  }
  if (parallel.prefill_context_parallel_size > 1) {
    return only_on_cpu(
        fmt::format("--prefill-context-parallel-size {}", parallel.prefill_context_parallel_size));
  }
  return {};
}

}  // namespace

Result<Device> choose_device(DeviceChoice choice, int index) {
  if (choice == DeviceChoice::kCpu) return Device();
  // Where there is no card at all, every rank is on the CPU, also those behind the first.
  if (choice == DeviceChoice::kAuto && !device_facts(DeviceType::kCuda).ok()) return Device();
  const Result<DeviceRuntime*> runtime = device_runtime(Device{DeviceType::kCuda, index});
  if (runtime.ok()) return (*runtime)->device();
  if (choice == DeviceChoice::kAuto && index == 0) return Device();
  const Status& status = runtime.status();
  return Status(status.code(), status.message() + ". --device cpu computes without a GPU")
      .with_context("--device cuda");
}

Result<Device> choose_device(const DeviceConfig& device, const ParallelConfig& parallel) {
  const bool waits_for_others = parallel.ranks_of_copy() > 1 || parallel.enable_expert_parallel ||
                                parallel.enable_dp_attention;
  if (device.device != DeviceChoice::kCpu && waits_for_others) load_kernels_at_once();
  return choose_device(device.device, device.first_card);
}

Status check_cards(const ResolvedConfig& config, Device first) {
  if (first.is_cpu() || num_ranks(config.engine.parallel) == 1) return {};
  RETURN_IF_ERROR(check_kinds(config));
  const ParallelConfig& parallel = config.engine.parallel;
  ASSIGN_OR_RETURN(const auto cards, device_facts(first.type));
  const int32_t asked =
      config.copies_share_experts ? num_ranks(parallel) : parallel.ranks_of_copy();
  if (first.index + asked <= std::ssize(cards)) return {};
  return invalid_argument(
      "--tensor-parallel-size {}, --pipeline-parallel-size {} and --data-parallel-size {} ask for "
      "{} GPUs, and this process sees {} ({}); --device cpu computes without any",
      parallel.tensor_parallel_size,
      parallel.pipeline_parallel_size,
      parallel.data_parallel_size,
      num_ranks(parallel),
      cards.size(),
      cards.front().name);
}

}  // namespace atom
