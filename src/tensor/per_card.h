// What is kept once for each card and not once for the process: attributes of kernels, handles of
// libraries, memory. For files that are compiled only when a GPU runtime is there.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "tensor/gpu_api.h"

namespace atom {

constexpr int kMaxCards = 64;  // of one process

// Of the calling thread; 0 where there is none.
inline int current_card() {
  int card = 0;
  return ATOM_GPU(GetDevice)(&card) == ATOM_GPU(Success) && card < kMaxCards ? card : 0;
}

// From any thread. A static one may hold what has to outlive every thread's last call: it is better
// behind a pointer then that nobody deletes.
template <typename T>
class PerCard {
 public:
  // That of the current card. `make` makes it at the first call on each.
  template <typename Make>
  T& get(const Make& make) {
    Place& place = places_[current_card()];
    std::call_once(place.once, [&] { place.value.emplace(make()); });
    return *place.value;
  }

 private:
  struct Place {
    std::once_flag once;
    std::optional<T> value;
  };
  std::array<Place, kMaxCards> places_;
};

}  // namespace atom
