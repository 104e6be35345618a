#include "base/checksum.h"

#include <algorithm>
#include <cstring>

namespace collage {
namespace {

// The names and values of the specification.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;

template <typename Word>
Word WordAt(const char* data) {
  Word word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

uint64_t Rotated(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

uint64_t Round(uint64_t lane, uint64_t word) { return Rotated(lane + word * kPrime2, 31) * kPrime1; }

}  // namespace

void Checksum::AddStripe(const char* stripe) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane] = Round(lanes_[lane], WordAt<uint64_t>(stripe + lane * sizeof(uint64_t)));
  }
}

void Checksum::Add(const char* data, size_t nbytes) {
  const size_t kept = nbytes_ % kStripe;
  nbytes_ += nbytes;
  if (kept > 0) {
    const size_t taken = std::min(kStripe - kept, nbytes);
    std::copy_n(data, taken, rest_.data() + kept);
    data += taken;
    nbytes -= taken;
    if (kept + taken < kStripe) return;
    AddStripe(rest_.data());
  }
  for (; nbytes >= kStripe; data += kStripe, nbytes -= kStripe) AddStripe(data);
  std::copy_n(data, nbytes, rest_.data());
}

uint64_t Checksum::Value() const {
  uint64_t value = kPrime5;  // the start for fewer bytes than a stripe
  if (nbytes_ >= kStripe) {
    value = Rotated(lanes_[0], 1) + Rotated(lanes_[1], 7) + Rotated(lanes_[2], 12) + Rotated(lanes_[3], 18);
    for (const uint64_t lane : lanes_) value = (value ^ Round(0, lane)) * kPrime1 + kPrime4;
  }
  value += nbytes_;
  const char *at = rest_.data(), *end = at + nbytes_ % kStripe;
  for (; end - at >= 8; at += 8) {
    value = Rotated(value ^ Round(0, WordAt<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  for (; end - at >= 4; at += 4) {
    value = Rotated(value ^ WordAt<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
  }
  for (; at < end; ++at) value = Rotated(value ^ WordAt<uint8_t>(at) * kPrime5, 11) * kPrime1;
  value = (value ^ value >> 33) * kPrime2;
  value = (value ^ value >> 29) * kPrime3;
  return value ^ value >> 32;
}

}  // namespace collage
