// Apart from harness.cu because the GPU's compiler cannot read the headers of tensor/.
#include <cstdio>
#include <memory>

#include "base/thread_pool.h"
#include "harness.h"
#include "ops/roofs/roofs.h"
#include "tensor/device_runtime.h"

namespace atom::bench {

Roofs measure_roofs() {
  constexpr double kSecondsEach = 0.1;
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  if (!runtime.ok()) {
    std::printf("%s\n", runtime.status().message().c_str());
    std::exit(1);
  }
  ThreadPool pool(1);
  const std::unique_ptr<DeviceQueue> queue = (*runtime)->create_queue();
  const ops::Roofs roofs = ops::measure_roofs(Stream(&pool, queue.get()), kSecondsEach);
  std::printf("%s: reads %.3f TB/s, copies %.3f TB/s\n",
              (*runtime)->facts().name.c_str(),
              roofs.read_bandwidth * 1e-12,
              roofs.copy_bandwidth * 1e-12);
  return {roofs.read_bandwidth, roofs.copy_bandwidth};
}

}  // namespace atom::bench
