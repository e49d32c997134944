// What layers hand to each other, and the form in which they would like to receive it. A layer
// knows neither who computed its input nor who reads its output: whoever wires them asks the
// consumers for wanted(), unites their answers and passes them to the producer.
//
//   const Activation x = norm.forward_add(update, residual, unite(router.wanted(),
//   experts.wanted()),
//                                         context);
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/quant_type.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom {

// A matrix of activations: rows of the model's dtype, the same rows quantized, or both.
struct Activation {
  Activation(const Tensor& tensor) : rows(tensor) {}  // NOLINT: every tensor is one
  Activation(const Tensor& tensor, ops::QuantizedRows quantized)
      : rows(tensor), codes(std::move(quantized)) {}

  bool has_codes() const { return codes.defined(); }
  int64_t num_rows() const { return (has_codes() ? codes.values : rows).size(0); }

  Tensor rows;               // [num_rows, size]; undefined when nobody reads them
  ops::QuantizedRows codes;  // [num_rows, size]; undefined values: none
};

// What the consumers of an activation can read. A producer may always leave the codes out and give
// rows instead; it gives rows when `rows` says so or when it gives no codes.
struct ActivationFormat {
  bool rows = true;                  // somebody reads rows
  QuantType codes = QuantType::kNo;  // kNo: nobody reads codes; else as ops::quantize makes them
  DType code_dtype = DType::kFloat8E4M3;  // kInt8; kUInt8: FP4
  Tensor static_scale = {};  // [1] float32, given before; undefined: made with the codes

  bool has_codes() const { return codes != QuantType::kNo; }
  // Whether a consumer of this format can read what a producer left.
  bool takes(const ops::QuantizedRows& quantized) const;
};

// For two consumers of one activation. When both read codes, of different kinds, the first one's
// are made, and the second quantizes the rows itself.
ActivationFormat unite(const ActivationFormat& first, const ActivationFormat& second);

// Where a producer leaves the codes of `format`: workspace tensors, except for a static scale.
ops::QuantizedRows make_codes(const ActivationFormat& format,
                              int64_t num_rows,
                              int64_t size,
                              Workspace& workspace);

}  // namespace atom
