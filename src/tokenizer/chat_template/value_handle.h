// Values of the template language: Python's None, bool, int (64 bits), float, str, list, tuple,
// dict and the few objects Jinja adds. A Value is a handle; value.h has what it points at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace atom::jinja {

class Heap;
struct Dict;
struct Function;
struct Loop;
struct Namespace;
struct Sequence;
struct String;

// Returns what it took from the heap's memory limit when it dies. The heap outlives it.
class Charge {
 public:
  Charge() = default;
  Charge(Heap* heap, size_t bytes);
  Charge(Charge&& other) noexcept;
  Charge& operator=(Charge&& other) noexcept;
  ~Charge();
  void grow(size_t bytes);  // throws TemplateError when the limit is passed
  size_t bytes() const { return bytes_; }

 private:
  Heap* heap_ = nullptr;  // null: not counted (literals of the template, the conversation)
  size_t bytes_ = 0;
};

class Value {
 public:
  Value() = default;  // undefined without a reason

  static Value undefined(std::string reason);
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(int64_t value) { return Value(Data(value)); }
  static Value real(double value) { return Value(Data(value)); }
  static Value literal(std::string text);  // a string that no heap counts

  template <typename T>
  explicit Value(std::shared_ptr<T> object) : data_(std::move(object)) {}

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }  // not a bool
  bool is_real() const { return holds<double>(); }
  bool is_number() const { return is_boolean() || is_integer() || is_real(); }
  bool is_integral() const { return is_boolean() || is_integer(); }
  bool is_string() const { return holds<std::shared_ptr<const String>>(); }
  bool is_sequence() const { return holds<std::shared_ptr<const Sequence>>(); }
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return holds<std::shared_ptr<Namespace>>(); }
  bool is_function() const { return holds<std::shared_ptr<const Function>>(); }
  bool is_loop() const { return holds<std::shared_ptr<Loop>>(); }

  // Each requires the matching is_...().
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integral() const { return is_boolean() ? int64_t{boolean()} : std::get<int64_t>(data_); }
  double number() const;  // any number, as a double
  const std::string& text() const;
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  std::shared_ptr<const Sequence> sequence_pointer() const {
    return std::get<std::shared_ptr<const Sequence>>(data_);
  }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& name_space() const { return *std::get<std::shared_ptr<Namespace>>(data_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(data_); }

  std::string undefined_reason() const;  // why, for an error message
  bool truthy() const;
  bool same_object(const Value& other) const;  // Python's `is`, but for two strings
  int depth() const;                           // containers nested below, this one included

 private:
  struct None {};
  struct Undefined {
    std::shared_ptr<const std::string> reason;
  };
  using Data = std::variant<Undefined,
                            None,
                            bool,
                            int64_t,
                            double,
                            std::shared_ptr<const String>,
                            std::shared_ptr<const Sequence>,
                            std::shared_ptr<const Dict>,
                            std::shared_ptr<Namespace>,
                            std::shared_ptr<const Function>,
                            std::shared_ptr<Loop>>;

  explicit Value(Data data) : data_(std::move(data)) {}
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }

  Data data_;
};

}  // namespace atom::jinja
