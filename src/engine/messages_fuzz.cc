// Any bytes decode to an error or to a message that encodes to the same bytes.
#include <cstdint>
#include <cstdlib>

#include "engine/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const std::vector<uint8_t> original(data, data + size);
  const atom::Result<atom::CoreRequest> request = atom::decode_core_request(bytes);
  if (request.ok() && atom::encode(*request) != original) std::abort();
  const atom::Result<atom::CoreResponse> response = atom::decode_core_response(bytes);
  if (response.ok() && atom::encode(*response) != original) std::abort();
  const atom::Result<atom::SchedulerOutput> step = atom::decode_scheduler_output(bytes);
  if (step.ok() && atom::encode(*step) != original) std::abort();
  return 0;
}
