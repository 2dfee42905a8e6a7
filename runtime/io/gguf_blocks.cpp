#include "runtime/io/gguf_blocks.h"

#include <algorithm>

#include "ir/values/half.h"

namespace braze {

namespace {

// The bytes of a block, read from its beginning to its end.
class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  uint8_t byte() { return std::to_integer<uint8_t>(*at_++); }
  float half() {
    const unsigned low = byte(), high = byte();
    return f16_to_float(static_cast<uint16_t>(low | high << 8));
  }
  uint32_t word() {
    uint32_t value = 0;
    for (int shift = 0; shift < 32; shift += 8) value |= uint32_t{byte()} << shift;
    return value;
  }
  /// The next bytes, which are not copied.
  const std::byte* bytes(size_t count) {
    const std::byte* const begin = at_;
    at_ += count;
    return begin;
  }

 private:
  const std::byte* at_;
};

unsigned at(const std::byte* bytes, size_t i) { return std::to_integer<unsigned>(bytes[i]); }

// Unpacks 32 elements: the low halves of 16 bytes, and then their high halves. Each element gets a
// fifth bit, and `zero` is subtracted from it.
void unpack_32(const std::byte* nibbles, uint32_t fifth, int zero, GgufBlock& block) {
  for (size_t i = 0; i < 16; ++i) {
    const unsigned first = (at(nibbles, i) & 15) | (fifth >> i & 1) << 4;
    const unsigned second = at(nibbles, i) >> 4 | (fifth >> (i + 16) & 1) << 4;
    block.q[i] = static_cast<int8_t>(static_cast<int>(first) - zero);
    block.q[i + 16] = static_cast<int8_t>(static_cast<int>(second) - zero);
  }
}

void unpack_q4_0(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  block.scale[0] = reader.half();
  unpack_32(reader.bytes(16), 0, 8, block);
}

void unpack_q4_1(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  block.scale[0] = reader.half();
  block.offset[0] = reader.half();
  unpack_32(reader.bytes(16), 0, 0, block);
}

void unpack_q5_0(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  block.scale[0] = reader.half();
  const uint32_t fifth = reader.word();
  unpack_32(reader.bytes(16), fifth, 16, block);
}

void unpack_q5_1(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  block.scale[0] = reader.half();
  block.offset[0] = reader.half();
  const uint32_t fifth = reader.word();
  unpack_32(reader.bytes(16), fifth, 0, block);
}

void unpack_q8_0(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  block.scale[0] = reader.half();
  for (size_t i = 0; i < 32; ++i) block.q[i] = static_cast<int8_t>(reader.byte());
}

// Unpacks the scales and offsets of eight groups, which have 6 bits each, in 12 bytes, and
// multiplies them by those of the block. The first four scales and offsets are the low bits of
// eight bytes. The others consist of four bits of the last four bytes and the two remaining bits of
// the first eight.
void unpack_scales(Reader& reader, GgufBlock& block) {
  const float scale = reader.half(), offset = reader.half();
  const std::byte* const packed = reader.bytes(12);
  for (size_t i = 0; i < 8; ++i) {
    unsigned s = at(packed, i) & 63, m = i < 4 ? at(packed, i + 4) & 63 : 0;
    if (i >= 4) {
      s = (at(packed, i + 4) & 15) | at(packed, i - 4) >> 6 << 4;
      m = at(packed, i + 4) >> 4 | at(packed, i) >> 6 << 4;
    }
    block.scale[i] = scale * static_cast<float>(s);
    block.offset[i] = -(offset * static_cast<float>(m));
  }
}

// Unpacks pairs of groups: the first group of a pair is the low halves of 32 bytes, and the second
// is their high halves.
void unpack_pairs(const std::byte* nibbles, const std::byte* fifths, GgufBlock& block) {
  for (size_t group = 0; group < 8; ++group)
    for (size_t i = 0; i < 32; ++i) {
      const unsigned low = at(nibbles, group / 2 * 32 + i) >> group % 2 * 4 & 15;
      const unsigned high = fifths ? at(fifths, i) >> group & 1 : 0;
      block.q[group * 32 + i] = static_cast<int8_t>(low | high << 4);
    }
}

void unpack_q4_k(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  unpack_scales(reader, block);
  unpack_pairs(reader.bytes(128), nullptr, block);
}

void unpack_q5_k(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  unpack_scales(reader, block);
  const std::byte* const fifths = reader.bytes(32);
  unpack_pairs(reader.bytes(128), fifths, block);
}

// Unpacks two halves of 128 elements, each of which consists of four runs of 32. Runs 0 and 1 are
// the low halves of 64 bytes, and runs 2 and 3 the high halves. Two more bits of run r are the bits
// 2 r and 2 r + 1 of 32 bytes.
void unpack_q6_k(const std::byte* bytes, GgufBlock& block) {
  Reader reader(bytes);
  const std::byte* const nibbles = reader.bytes(128);
  const std::byte* const tops = reader.bytes(64);
  const std::byte* const scales = reader.bytes(16);
  const float scale = reader.half();
  for (size_t half = 0; half < 2; ++half)
    for (size_t run = 0; run < 4; ++run)
      for (size_t i = 0; i < 32; ++i) {
        const unsigned low = at(nibbles, half * 64 + run % 2 * 32 + i) >> run / 2 * 4 & 15;
        const unsigned high = at(tops, half * 32 + i) >> 2 * run & 3;
        block.q[half * 128 + run * 32 + i] =
            static_cast<int8_t>(static_cast<int>(low | high << 4) - 32);
      }
  for (size_t i = 0; i < 16; ++i)
    block.scale[i] = scale * static_cast<float>(std::to_integer<int8_t>(scales[i]));
}

// The types in ggml's own files. Of types without `unpack` and dtype, only the size is known.
constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, DType::F32},
    {1, "F16", 1, 2, DType::F16},
    {2, "Q4_0", 32, 18, {}, 4, 32, DType::F16, false, unpack_q4_0},
    {3, "Q4_1", 32, 20, {}, 4, 32, DType::F16, true, unpack_q4_1},
    {6, "Q5_0", 32, 22, {}, 5, 32, DType::F16, false, unpack_q5_0},
    {7, "Q5_1", 32, 24, {}, 5, 32, DType::F16, true, unpack_q5_1},
    {8, "Q8_0", 32, 34, {}, 8, 32, DType::F16, false, unpack_q8_0},
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, {}},
    {11, "Q3_K", 256, 110, {}},
    {12, "Q4_K", 256, 144, {}, 4, 32, DType::F32, true, unpack_q4_k},
    {13, "Q5_K", 256, 176, {}, 5, 32, DType::F32, true, unpack_q5_k},
    {14, "Q6_K", 256, 210, {}, 6, 16, DType::F32, false, unpack_q6_k},
    {15, "Q8_K", 256, 292, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, DType::I32},
    {27, "I64", 1, 8, DType::I64},
    {28, "F64", 1, 8, DType::F64},
    {30, "BF16", 1, 2, DType::BF16},
};

}  // namespace

const GgufType* find_gguf_type(uint32_t number) {
  const auto* const found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [number](const GgufType& t) { return t.number == number; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::span<const GgufType> gguf_types() { return kTypes; }

}  // namespace braze
