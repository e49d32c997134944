// CHECK(a == b): an invariant of our own. When it does not hold the program prints the expression,
// both values and the place, and aborts. Input from outside never reaches a CHECK; it gets a
// Status.
#pragma once

#include <fmt/format.h>

#include <string>
#include <type_traits>

namespace atom {

[[noreturn]] void check_failed(const char* expression,
                               const std::string& detail,
                               const char* file,
                               int line);

namespace check_internal {

template <typename T>
std::string describe(const T& value) {
  if constexpr (fmt::is_formattable<T>::value) {
    return fmt::format("{}", value);
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<long long>(value));
  } else {
    return "?";
  }
}

struct Outcome {
  bool ok;
  std::string detail;
};

// Captures the left side of a comparison so that both sides can be printed.
template <typename L>
struct Left {
  const L& left;
  operator Outcome() const { return {static_cast<bool>(left), {}}; }
#define ATOM_CHECK_OPERATOR(op)                                                        \
  template <typename R>                                                                \
  Outcome operator op(const R& right) const {                                          \
    if (left op right) return {true, {}};                                              \
    return {false, describe(left) + " " #op " " + describe(right) + " does not hold"}; \
  }
  ATOM_CHECK_OPERATOR(==)
  ATOM_CHECK_OPERATOR(!=)
  ATOM_CHECK_OPERATOR(<)
  ATOM_CHECK_OPERATOR(<=)
  ATOM_CHECK_OPERATOR(>)
  ATOM_CHECK_OPERATOR(>=)
#undef ATOM_CHECK_OPERATOR
};

struct Decompose {
  template <typename L>
  Left<L> operator<<(const L& left) const {
    return {left};
  }
};

}  // namespace check_internal
}  // namespace atom

#define CHECK(...)                                                                     \
  do {                                                                                 \
    if (::atom::check_internal::Outcome outcome_ = ::atom::check_internal::Decompose() \
                                                   << __VA_ARGS__;                     \
        __builtin_expect(!outcome_.ok, 0)) {                                           \
      ::atom::check_failed(#__VA_ARGS__, outcome_.detail, __FILE__, __LINE__);         \
    }                                                                                  \
  } while (false)
