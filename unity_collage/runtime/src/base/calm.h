// Tells whether other work of the machine takes the cores while kernels are timed.
#pragma once

#include <cstdint>
#include <optional>

namespace collage {

class Calm {
 public:
  // Waits until every thread of the pool runs on a core of its own, at most `seconds`; whether it is so. From
  // now on preemptions count.
  bool Await(double seconds);

  // Whether all threads still have their cores, and none was kept from running for a notable part of a run
  // that took `seconds`.
  bool Lasted(double seconds);

 private:
  int64_t preemptions_ = 0;
  int64_t waited_ns_ = 0;
};

}  // namespace collage
