// Where an engine core and its front end meet.
#pragma once

#include <chrono>
#include <string>

namespace atom {

struct EngineCoreEndpoints {
  std::string requests;   // ROUTER of the front end
  std::string responses;  // PULL of the front end
  std::string identity;   // this core's name toward the ROUTER
  // How often the core speaks even when it has nothing to say.
  std::chrono::milliseconds heartbeat{1000};
};

}  // namespace atom
