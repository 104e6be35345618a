// What a fork of the process waits for.
#pragma once

namespace collage {

// While this object lives, a fork of the process by another thread waits. The new process lacks the threads
// of its parent, so a lock that one of them holds is never released there.
class WithoutForks {
 public:
  WithoutForks();
  WithoutForks(const WithoutForks&) = delete;
  WithoutForks& operator=(const WithoutForks&) = delete;
  ~WithoutForks();
};

}  // namespace collage
