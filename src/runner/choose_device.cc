#include "runner/choose_device.h"

#include "tensor/device_runtime.h"

namespace atom {
namespace {

int32_t num_ranks(const ParallelConfig& parallel) {
  return parallel.ranks_of_copy() * parallel.data_parallel_size;
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

Result<Device> choose_device(const DeviceConfig& device) {
  return choose_device(device.device, device.first_card);
}

Result<std::string> kind_of(Device device) {
  if (device.is_cpu()) return std::string("CPU");
  ASSIGN_OR_RETURN(const DeviceRuntime* const card, device_runtime(device));
  return card->facts().name;
}

Status check_cards(const ResolvedConfig& config, Device first) {
  if (first.is_cpu() || num_ranks(config.engine.parallel) == 1) return {};
  const ParallelConfig& parallel = config.engine.parallel;
  ASSIGN_OR_RETURN(const auto cards, device_facts(first.type));
  const int32_t num_nodes = config.engine.nodes.num_nodes;
  const int32_t asked =
      (config.copies_are_one_core() ? num_ranks(parallel) : parallel.ranks_of_copy()) / num_nodes;
  if (first.index + asked <= std::ssize(cards)) return {};
  std::string flags = fmt::format("--tensor-parallel-size {}, --pipeline-parallel-size {}",
                                  parallel.tensor_parallel_size,
                                  parallel.pipeline_parallel_size);
  if (parallel.prefill_context_parallel_size > 1) {
    flags +=
        fmt::format(", --prefill-context-parallel-size {}", parallel.prefill_context_parallel_size);
  }
  if (num_nodes > 1) flags += fmt::format(", --nnodes {}", num_nodes);
  return invalid_argument(
      "{} and --data-parallel-size {} ask for {} GPUs{}, and this process sees {} ({}); --device "
      "cpu computes without any",
      flags,
      parallel.data_parallel_size,
      num_ranks(parallel) / num_nodes,
      num_nodes > 1 ? " of this node" : "",
      cards.size(),
      cards.front().name);
}

}  // namespace atom
