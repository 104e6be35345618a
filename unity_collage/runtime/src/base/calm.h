// Detects that other work of the machine takes cores while kernels are timed.
#pragma once

#include <cstdint>
#include <optional>

namespace collage {

class Calm {
 public:
  // Waits for at most `seconds` until every thread of the pool runs on a core of its own, and returns whether
  // they all do. Preemptions are counted from here on.
  bool Await(double seconds);

  // Whether all threads still have cores of their own, and their waits for a core were short, measured by a
  // run that took `seconds`.
  bool Lasted(double seconds);

 private:
  int64_t preemptions_ = 0;
  int64_t waited_ns_ = 0;
};

}  // namespace collage
