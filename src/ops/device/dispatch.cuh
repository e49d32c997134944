// From an Element to its type in device code.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/simd/element.h"

namespace atom::ops::device {

// Calls body(ElementTag<T>{}) on the host.
template <typename Body>
void dispatch_element(Element element, Body&& body) {
  switch (element) {
    case Element::kFloat32:
      return body(ElementTag<float>{});
    case Element::kFloat16:
      return body(ElementTag<Half>{});
    case Element::kBFloat16:
      return body(ElementTag<BFloat16>{});
  }
}

}  // namespace atom::ops::device
