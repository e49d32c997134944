#include "ops/simd/amx_emulator.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace atom::ops {

struct AmxEmulator::Handler {
  struct sigaction action;
};

namespace {

constexpr int kMaxRows = 16, kRowSize = 64, kNumTiles = 8;

struct Tile {
  int num_rows = 0, row_size = 0;
  alignas(64) char bytes[kMaxRows][kRowSize] = {};

  template <typename T>
  T& at(int row, int i) {
    return reinterpret_cast<T*>(bytes[row])[i];
  }
  void clear() { memset(bytes, 0, sizeof(bytes)); }
};

thread_local Tile tiles[kNumTiles];

// As the manual writes it: the first of pairs and the second ones are summed up apart. Products of
// bfloat16 are exact in float32.
void multiply_bfloat16(Tile& sum, Tile& a, Tile& b) {
  const auto value = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
  for (int m = 0; m < sum.num_rows; ++m) {
    for (int n = 0; n < sum.row_size / 4; ++n) {
      float parts[2] = {};
      for (int k = 0; k < b.num_rows; ++k) {
        for (int i = 0; i < 2; ++i) {
          parts[i] += value(a.at<uint16_t>(m, 2 * k + i)) * value(b.at<uint16_t>(k, 2 * n + i));
        }
      }
      sum.at<float>(m, n) += parts[0] + parts[1];
    }
  }
}

void multiply_int8(Tile& sum, Tile& a, Tile& b) {
  for (int m = 0; m < sum.num_rows; ++m) {
    for (int n = 0; n < sum.row_size / 4; ++n) {
      for (int k = 0; k < b.num_rows; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum.at<int32_t>(m, n) += a.at<int8_t>(m, 4 * k + i) * b.at<int8_t>(k, 4 * n + i);
        }
      }
    }
  }
}

// One instruction with a prefix of three bytes, and the registers it is executed with.
class Instruction {
 public:
  explicit Instruction(greg_t* registers)
      : registers_(registers), code_(reinterpret_cast<const uint8_t*>(registers[REG_RIP])) {}

  // False when it is none that is known, or its operands do not go together.
  bool execute() {
    constexpr int kMap = 2;  // 0F 38
    if (code_[0] != 0xc4 || (code_[1] & 0x1f) != kMap) return false;
    enum Prefix { kNone, k66, kF3, kF2 };
    const int prefix = code_[2] & 3, opcode = code_[3], reg = code_[4] >> 3 & 7;
    if (opcode == 0x49 && prefix == kNone) return is_memory() ? configure() : release();
    if (opcode == 0x49 && prefix == kF2) return zero(tiles[reg]);
    if (opcode == 0x4b && prefix == kF2) return load(tiles[reg]);
    if (opcode == 0x4b && prefix == kF3) return store(tiles[reg]);
    Tile &a = tiles[code_[4] & 7], &b = tiles[~(code_[2] >> 3) & 7];
    if (opcode == 0x5c && prefix == kF3) return multiply(multiply_bfloat16, tiles[reg], a, b);
    if (opcode == 0x5e && prefix == kF2) return multiply(multiply_int8, tiles[reg], a, b);
    return false;
  }

 private:
  bool is_memory() const { return code_[4] >> 6 != 3; }

  int64_t register_at(int number) const {
    constexpr int kOrder[] = {REG_RAX,
                              REG_RCX,
                              REG_RDX,
                              REG_RBX,
                              REG_RSP,
                              REG_RBP,
                              REG_RSI,
                              REG_RDI,
                              REG_R8,
                              REG_R9,
                              REG_R10,
                              REG_R11,
                              REG_R12,
                              REG_R13,
                              REG_R14,
                              REG_R15};
    return registers_[kOrder[number]];
  }
  // A register's number has its fourth bit, inverted, in the prefix.
  int extended(int number, int bit) const { return number | ((code_[1] >> bit & 1) ^ 1) << 3; }

  // The operand in memory, with the stride where it has an index.
  struct Address {
    int64_t base = 0, index = 0;
  };
  Address read_address(int* length) const {
    const int mode = code_[4] >> 6, rm = code_[4] & 7;
    Address address;
    *length = 5;
    bool has_base = true;
    int base = rm;
    if (rm == 4) {
      const int sib = code_[(*length)++];
      const int index = extended(sib >> 3 & 7, 6);
      if (index != 4) address.index = register_at(index) << (sib >> 6);
      base = sib & 7;
      has_base = base != 5 || mode != 0;
    } else if (rm == 5 && mode == 0) {
      has_base = false;
    }
    int32_t displacement = 0;
    if (mode == 1) {
      displacement = static_cast<int8_t>(code_[(*length)++]);
    } else if (mode == 2 || !has_base) {
      memcpy(&displacement, code_ + *length, sizeof(displacement));
      *length += 4;
    }
    if (has_base) address.base = register_at(extended(base, 5));
    if (rm == 5 && mode == 0) address.base = reinterpret_cast<int64_t>(code_) + *length;
    address.base += displacement;
    return address;
  }

  bool finish(int length) {
    registers_[REG_RIP] += length;
    return true;
  }

  bool configure() {
    int length;
    const Address address = read_address(&length);
    const auto* config = reinterpret_cast<const uint8_t*>(address.base + address.index);
    if (config[0] != 1) return false;
    for (int t = 0; t < kNumTiles; ++t) {
      uint16_t row_size;
      memcpy(&row_size, config + 16 + 2 * t, sizeof(row_size));
      if (config[48 + t] > kMaxRows || row_size > kRowSize) return false;
      tiles[t] = {.num_rows = config[48 + t], .row_size = row_size};
    }
    return finish(length);
  }
  bool release() {
    for (Tile& tile : tiles) tile = {};
    return finish(5);
  }
  bool zero(Tile& tile) {
    tile.clear();
    return tile.num_rows > 0 && finish(5);
  }
  bool load(Tile& tile) {
    int length;
    const Address address = read_address(&length);
    tile.clear();
    for (int r = 0; r < tile.num_rows; ++r) {
      memcpy(tile.bytes[r],
             reinterpret_cast<const char*>(address.base + r * address.index),
             tile.row_size);
    }
    return tile.num_rows > 0 && finish(length);
  }
  bool store(const Tile& tile) {
    int length;
    const Address address = read_address(&length);
    for (int r = 0; r < tile.num_rows; ++r) {
      memcpy(
          reinterpret_cast<char*>(address.base + r * address.index), tile.bytes[r], tile.row_size);
    }
    return tile.num_rows > 0 && finish(length);
  }
  bool multiply(void (*add)(Tile&, Tile&, Tile&), Tile& sum, Tile& a, Tile& b) {
    const bool fits = sum.num_rows > 0 && a.num_rows == sum.num_rows &&
                      a.row_size == b.num_rows * 4 && b.row_size == sum.row_size;
    if (!fits) return false;
    add(sum, a, b);
    return finish(5);
  }

  greg_t* const registers_;
  const uint8_t* const code_;
};

void handle(int signal, siginfo_t*, void* context) {
  auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
  // Returning to the instruction raises the signal again, this time to end the process.
  if (!Instruction(machine->gregs).execute()) ::signal(signal, SIG_DFL);
}

}  // namespace

AmxEmulator::AmxEmulator() : before_(std::make_unique<Handler>()) {
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGILL, &action, &before_->action) == 0);
}

AmxEmulator::~AmxEmulator() {
  sigaction(SIGILL, &before_->action, nullptr);
}

}  // namespace atom::ops
