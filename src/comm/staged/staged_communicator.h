// The transport between GPUs that cannot reach each other's memory, as those of several nodes: what
// ranks exchange is copied to the host, goes there as another transport's tensors do, and is copied
// back.
//
// The host waits in each operation until the queue has come to it, so operations cannot be
// recorded. In return no card ever waits for another one, whose host may want an idle card first,
// and whoever is lost is noticed as the other transport notices it.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "tensor/device_runtime.h"

namespace atom {

// `host` exchanges tensors of the host, and still does on streams of the CPU. `card` is the rank's,
// whose queues alone it is called with. Takes pinned memory of the host as large as the largest
// tensors that were exchanged.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       DeviceRuntime& card);

}  // namespace atom
