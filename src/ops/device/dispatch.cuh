// From an Element to its type in device code.
#pragma once

#include "ops/device/elements.cuh"
#include "tensor/element.h"

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
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops::device
